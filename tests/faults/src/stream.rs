//! The bytes of a connection: plain TCP, or TLS where the servers of this run have it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis_lock_harness::tls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, IpAddr, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// To connect, and for the handshake.
const LIMIT: Duration = Duration::from_secs(1);

/// A connection to a server on this machine.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects to the server of this port, by TLS if it has a port for that.
    pub fn open(port: u16) -> Option<Stream> {
        let address = |port| ([127, 0, 0, 1], port).into();
        let connect = |port| TcpStream::connect_timeout(&address(port), LIMIT);
        let Some(tls_port) = tls::port_of(port) else {
            let socket = connect(port).ok()?;
            socket.set_nodelay(true).ok()?;
            return Some(Stream::Plain(socket));
        };
        let mut socket = connect(tls_port).ok()?;
        socket.set_nodelay(true).ok()?;
        socket.set_read_timeout(Some(LIMIT)).ok()?;
        let name = ServerName::IpAddress(IpAddr::from(std::net::IpAddr::from([127, 0, 0, 1])));
        let mut session = ClientConnection::new(config(), name).expect("a TLS session");
        while session.is_handshaking() {
            session.complete_io(&mut socket).ok()?;
        }
        Some(Stream::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// Trusts the authority of this run alone.
fn config() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let make = || {
        let authority = tls::authority().expect("a run with TLS");
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(authority).expect("a certificate"))
            .expect("an authority");
        let config = ClientConfig::builder().with_root_certificates(roots);
        Arc::new(config.with_no_client_auth())
    };
    CONFIG.get_or_init(make).clone()
}
