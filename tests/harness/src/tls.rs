//! Certificates of tests, and servers that clients reach by TLS as well: `LOCK_TLS` names a directory for the
//! certificates of such a run, which the first server of it makes.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

/// The names by which tests reach a server.
const HERE: [&str; 2] = ["127.0.0.1", "localhost"];

/// What a certificate for these names states, in a directory with a file for it and one for its key.
fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn write(dir: &Path, name: &str, certificate: &str, key: &KeyPair) {
    std::fs::write(dir.join(format!("{name}.crt")), certificate).expect("a certificate");
    std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).expect("its key");
}

/// Makes an authority, `ca.crt`, and a certificate of it with a key, `NAME.crt` and `NAME.key`, for each of these
/// names: for servers and clients of this machine.
pub fn issue(dir: &Path, names: &[&str]) {
    let mut authority = params("authority", &[]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("an authority");
    write(dir, "ca", &authority.pem(), authority.key());
    for name in names {
        let mut params = params(name, &HERE);
        params.is_ca = IsCa::ExplicitNoCa;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        write(dir, name, &certificate.pem(), &key);
    }
}

/// Makes a certificate without an authority, `NAME.crt` and `NAME.key`, for a server that is reached as `host`. It
/// says that it is an authority itself, as those of `openssl req -x509` do. An expired one ended yesterday.
pub fn self_signed(dir: &Path, name: &str, host: &str, is_expired: bool) {
    let mut params = params(name, &[host]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    if is_expired {
        params.not_after = (SystemTime::now() - Duration::from_secs(24 * 3600)).into();
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    write(dir, name, &certificate.pem(), &key);
}

fn directory() -> Option<&'static PathBuf> {
    static DIRECTORY: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let dir = PathBuf::from(std::env::var_os("LOCK_TLS")?);
        std::fs::create_dir_all(&dir).expect("LOCK_TLS");
        issue(&dir, &["server"]);
        Some(dir)
    });
    DIRECTORY.as_ref()
}

/// Whether the servers of this run have a port for TLS.
pub fn is_on() -> bool {
    directory().is_some()
}

/// The port for TLS of the server with this port.
pub fn port_of(port: u16) -> Option<u16> {
    is_on().then(|| port + 1)
}

/// The certificate of the authority.
pub fn authority() -> Option<PathBuf> {
    directory().map(|dir| dir.join("ca.crt"))
}

/// The options of a server with this port for TLS, the certificate `name` and the authority `ca` of this directory.
pub fn options_of(tls_port: u16, dir: &Path, name: &str, ca: &str, clients: &str) -> Vec<String> {
    let file = |name: String| dir.join(name).display().to_string();
    [
        ("--tls-port", tls_port.to_string()),
        ("--tls-cert-file", file(format!("{name}.crt"))),
        ("--tls-key-file", file(format!("{name}.key"))),
        ("--tls-ca-cert-file", file(format!("{ca}.crt"))),
        ("--tls-auth-clients", clients.into()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_string(), value])
    .collect()
}

/// The options of the server with this port in a run by TLS.
pub(crate) fn options(port: u16) -> Vec<String> {
    match (directory(), port_of(port)) {
        (Some(dir), Some(tls_port)) => options_of(tls_port, dir, "server", "ca", "no"),
        _ => Vec::new(),
    }
}
