//! Servers that clients reach by TLS as well: `LOCK_TLS` names a directory with the certificates `ca.crt`, `server.crt`
//! and the key `server.key`.

use std::path::PathBuf;

fn directory() -> Option<PathBuf> {
    std::env::var_os("LOCK_TLS").map(PathBuf::from)
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

/// The options of the server with this port.
pub(crate) fn options(port: u16) -> Vec<String> {
    let (Some(dir), Some(tls_port)) = (directory(), port_of(port)) else {
        return Vec::new();
    };
    let file = |name: &str| dir.join(name).display().to_string();
    [
        ("--tls-port", tls_port.to_string()),
        ("--tls-ca-cert-file", file("ca.crt")),
        ("--tls-cert-file", file("server.crt")),
        ("--tls-key-file", file("server.key")),
        ("--tls-auth-clients", "no".into()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_string(), value])
    .collect()
}
