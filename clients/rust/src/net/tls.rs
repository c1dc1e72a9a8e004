//! TLS: the trusted authorities and the client's certificate. The cryptography is that of `ring`, for these connections
//! only; the provider that the program has installed is not changed.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_name, WebPkiServerVerifier};
use rustls::crypto::ring::default_provider;
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

use crate::error::{Error, Result};
use crate::trace::shown;

/// What is wrong with a certificate, as text.
type Made<T> = std::result::Result<T, String>;

/// With the feature `tls`: the certificates for `rediss://` in PEM, of the trusted authorities and of the client.
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use redis_lock_client::{Certificates, Server};
///
/// let certificates = Certificates::new()
///     .authorities(std::fs::read("ca.crt")?)
///     .client(std::fs::read("client.crt")?, std::fs::read("client.key")?);
/// let server = Server::builder("rediss://locks.example.com").certificates(certificates).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Certificates {
    authorities: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
    /// Built with the first connection.
    made: Arc<OnceLock<TlsConnector>>,
}

impl Certificates {
    /// The authorities of the system, and no client certificate.
    pub fn new() -> Certificates {
        Certificates::default()
    }

    /// Trusts these authorities instead of the system's. A server may show one of these certificates as its own.
    #[must_use]
    pub fn authorities(mut self, pem: impl Into<Vec<u8>>) -> Certificates {
        self.authorities = Some(pem.into());
        self.made = Arc::default();
        self
    }

    /// Presents this certificate (with its intermediate certificates) and its private key to a server that asks for
    /// one.
    #[must_use]
    pub fn client(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Certificates {
        self.client = Some((certificate.into(), key.into()));
        self.made = Arc::default();
        self
    }

    pub(crate) fn connector(&self, server: &str) -> Result<TlsConnector> {
        if let Some(made) = self.made.get() {
            return Ok(made.clone());
        }
        let settings = self.settings();
        let settings = settings.map_err(|why| Error::config(format!("{server}: {why}")))?;
        let made = || TlsConnector::from(Arc::new(settings));
        Ok(self.made.get_or_init(made).clone())
    }

    fn settings(&self) -> Made<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let verifier = Arc::new(self.verifier()?);
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let Some((certificate, key)) = &self.client else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("the client's key: {error}"))?;
        let settings = builder.with_client_auth_cert(chain, key);
        settings.map_err(|error| format!("the client's certificate: {error}"))
    }

    fn verifier(&self) -> Made<Verifier> {
        let given = self.authorities.as_deref().map(certificates);
        let given = given.transpose()?.unwrap_or_default();
        let roots = Arc::new(self.roots(&given)?);
        let provider = Arc::new(default_provider());
        let chains = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        let chains = chains.map_err(|error| error.to_string())?;
        Ok(Verifier { chains, given })
    }

    fn roots(&self, given: &[CertificateDer<'static>]) -> Made<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for authority in given.iter().cloned() {
            let added = roots.add(authority);
            added.map_err(|error| format!("an authority's certificate: {error}"))?;
        }
        if self.authorities.is_some() {
            return Ok(roots);
        }
        // Some of the system's may be unreadable; without any, no server can be verified.
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = found.errors.first().map(ToString::to_string);
            let why = why.unwrap_or_else(|| "none is installed".into());
            return Err(format!("no authority's certificate on this machine: {why}"));
        }
        Ok(roots)
    }
}

shown! { Certificates, _certificates }

fn certificates(pem: &[u8]) -> Made<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("no certificate in PEM".into()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("no certificate in PEM: {error}")),
    }
}

/// Verifies the chain of a server's certificate, and accepts a certificate that was given as an authority's as the
/// server's own, too: `openssl req -x509` makes such ones.
#[derive(Debug)]
struct Verifier {
    chains: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let verified = self
            .chains
            .verify_server_cert(end_entity, intermediates, name, ocsp, now);
        match verified {
            // The dates were checked before this.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(why)))
                if why.to_string() == "CaUsedAsEndEntity" && self.given.contains(end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.chains
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.chains
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}
