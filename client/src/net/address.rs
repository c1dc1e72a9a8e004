//! The URL of a server: one server, the nodes of a cluster, or the sentinels that know the primary.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::error::{Error, Result};

/// The default port of sentinels.
const SENTINEL_PORT: &str = "26379";

/// A parsed URL.
#[derive(Clone)]
pub(crate) struct Address {
    /// Without credentials, and the same for every order of the hosts.
    pub name: String,
    /// The nodes to ask first: one for a single server, one or more for a cluster or for sentinels.
    pub seeds: Vec<ConnectionInfo>,
    pub kind: Kind,
}

/// The role of the seeds.
#[derive(Clone)]
pub(crate) enum Kind {
    Server,
    /// Nodes of a cluster, each of which knows which node serves a key.
    Cluster,
    /// Sentinels.
    Sentinel {
        /// The name of the primary in their configuration.
        primary: String,
        /// The login of the primary; the sentinels supply its host and port.
        login: Box<ConnectionInfo>,
    },
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Address> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
        if let Some(scheme) = scheme.strip_suffix("+cluster") {
            return cluster(scheme, rest);
        }
        if let Some(scheme) = scheme.strip_suffix("+sentinel") {
            return sentinel(scheme, rest);
        }
        let seeds = vec![server(&format!("{scheme}://{rest}"))?];
        Ok(Address {
            name: names(&seeds),
            seeds,
            kind: Kind::Server,
        })
    }
}

fn cluster(scheme: &str, rest: &str) -> Result<Address> {
    let (user, hosts) = split_user(rest);
    let hosts = hosts.trim_end_matches('/').split(',');
    let seeds = hosts.map(|host| server(&format!("{scheme}://{user}{host}")));
    let seeds = seeds.collect::<Result<Vec<_>>>()?;
    if seeds.iter().any(|seed| seed.redis_settings().db() != 0) {
        return Err(unreadable(&"a cluster has the database 0 alone"));
    }
    Ok(Address {
        name: names(&seeds),
        seeds,
        kind: Kind::Cluster,
    })
}

fn sentinel(scheme: &str, rest: &str) -> Result<Address> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, hosts) = split_user(rest);
    let (hosts, primary) = hosts.split_once('/').unwrap_or((hosts, ""));
    let (primary, db) = primary.split_once('/').unwrap_or((primary, ""));
    if primary.is_empty() {
        return Err(unreadable(
            &"the primary's name is missing behind the hosts",
        ));
    }
    let (mut sentinel_user, mut sentinel_password) = ("", "");
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sentinel-user", value)) => sentinel_user = value,
            Some(("sentinel-password", value)) => sentinel_password = value,
            // The error does not quote the parameter, which may be a password.
            _ => {
                let why = "behind the ? there is only sentinel-user=... and sentinel-password=...";
                return Err(unreadable(&why));
            }
        }
    }
    let own = match (sentinel_user, sentinel_password) {
        ("", "") => String::new(),
        (user, password) => format!("{user}:{password}@"),
    };
    let seeds = hosts.split(',').map(|host| {
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']'));
        let port = if has_port { "" } else { ":" };
        let default = if has_port { "" } else { SENTINEL_PORT };
        server(&format!("{scheme}://{own}{host}{port}{default}"))
    });
    let seeds = seeds.collect::<Result<Vec<_>>>()?;
    let login = server(&format!("{scheme}://{user}primary/{db}"))?;
    let mut hosts: Vec<_> = seeds.iter().map(|seed| seed.addr().to_string()).collect();
    hosts.sort();
    let db = login.redis_settings().db();
    Ok(Address {
        name: format!("{}/{primary}/{db}", hosts.join(",")),
        seeds,
        kind: Kind::Sentinel {
            primary: primary.to_string(),
            login: Box::new(login),
        },
    })
}

/// `user:password@`, or nothing, and the rest.
fn split_user(rest: &str) -> (&str, &str) {
    rest.split_at(rest.rfind('@').map_or(0, |at| at + 1))
}

fn server(url: &str) -> Result<ConnectionInfo> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (user, _) = split_user(rest);
    // Some clients take a word without a colon for a user, others for a password.
    if !scheme.ends_with("unix") && !user.is_empty() && !user.contains(':') {
        return Err(unreadable(&"a login is user:password or :password"));
    }
    let (plain, is_tls) = match url.split_once("://") {
        Some(("rediss", rest)) => (format!("redis://{rest}"), true),
        Some(("valkeys", rest)) => (format!("valkey://{rest}"), true),
        _ => (url.to_string(), false),
    };
    let node = plain.into_connection_info();
    let node = node.map_err(|error| unreadable(&error))?;
    if node.redis_settings().db() < 0 {
        return Err(unreadable(&"a database has a number from 0 on"));
    }
    let ConnectionAddr::Tcp(host, port) = node.addr() else {
        return Ok(node);
    };
    let address = ConnectionAddr::TcpTls {
        host: host.clone(),
        port: *port,
        // The certificate is always verified.
        insecure: false,
        tls_params: None,
    };
    Ok(if is_tls { node.set_addr(address) } else { node })
}

fn unreadable(why: &dyn std::fmt::Display) -> Error {
    Error::config(format!(
        "no URL of a server: {why} (redis://host:port, redis+cluster://host:port,host:port, \
         redis+sentinel://host:port,host:port/name)"
    ))
}

fn names(seeds: &[ConnectionInfo]) -> String {
    let mut names: Vec<_> = seeds.iter().map(name_of).collect();
    names.sort();
    names.join(",")
}

/// `host:port/db`, or the path of a socket.
pub(crate) fn name_of(node: &ConnectionInfo) -> String {
    format!("{}/{}", node.addr(), node.redis_settings().db())
}

/// The address of another node, with the transport (TCP or TLS) of a known one.
pub(crate) fn address_like(known: &ConnectionAddr, host: &str, port: u16) -> ConnectionAddr {
    // A cluster node that does not know its own host name answers with an empty one: the host is the same.
    let host = match (host, known) {
        ("", ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) => host.clone(),
        _ => host.to_string(),
    };
    match known {
        ConnectionAddr::TcpTls { insecure, .. } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: None,
        },
        _ => ConnectionAddr::Tcp(host, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(url: &str) -> String {
        Address::parse(url).map_or_else(|error| error.to_string(), |address| address.name)
    }

    #[test]
    fn the_name_has_no_credentials_and_a_fixed_order_of_hosts() {
        assert_eq!(name("redis://u:secret@h:7000/3"), "h:7000/3");
        assert_eq!(name("localhost"), "localhost:6379/0");
        assert_eq!(name("redis+cluster://u:p@b:2,a:1"), "a:1/0,b:2/0");
        assert_eq!(
            name("rediss+sentinel://u:p@b:2,a/main/5?sentinel-password=x"),
            "a:26379,b:2/main/5"
        );
        assert_eq!(name("redis+unix:///tmp/a@b?db=2"), "/tmp/a@b/2");
    }

    #[test]
    fn an_unreadable_url_is_refused() {
        for url in [
            "http://h",
            "redis+sentinel://h:1",
            "redis+sentinel://h/main?x=1",
            "redis://secret@h",
            "redis+cluster://secret@h:1,h:2",
            "redis+sentinel://secret@h/main",
            "redis://h/xx",
            "redis://h/-1",
            "redis+cluster://h:1,h:2/5",
            "redis+cluster://",
            "redis+cluster://,",
            "redis+cluster://h:1,",
            "redis+sentinel:///main",
            "redis://",
        ] {
            assert!(name(url).starts_with("no URL of a server"), "{url}");
        }
    }

    #[test]
    fn the_error_of_an_unreadable_url_quotes_no_part_of_it() {
        for url in [
            "redis+sentinel://h/main?sentinel-pass=secret",
            "redis+sentinel://u:p?secret@h/main",
            "redis+cluster://u:secret@h:1,h:x",
            "redis://u:secret@h:99999",
            "redis://secret@h",
            "redis://h?password=secret",
        ] {
            assert!(!name(url).contains("secret"), "{}", name(url));
        }
    }

    #[test]
    fn sentinels_have_a_login_of_their_own() {
        let url = "redis+sentinel://app:one@h:1/main?sentinel-user=s&sentinel-password=two";
        let address = Address::parse(url).unwrap_or_else(|error| panic!("{error}"));
        let sentinel = address
            .seeds
            .first()
            .and_then(|seed| seed.redis_settings().password());
        assert_eq!(sentinel, Some("two"));
        let Kind::Sentinel { login, .. } = address.kind else {
            panic!("no sentinels");
        };
        assert_eq!(login.redis_settings().password(), Some("one"));
        assert_eq!(login.redis_settings().username(), Some("app"));
    }
}
