//! The address of a server: one server, the nodes of a cluster, or the sentinels that know the primary.
//!
//! `clients/addresses.tsv` of the repository has the grammar, which all clients follow; the test below reads it.

use std::net::Ipv6Addr;

use redis::RedisConnectionInfo as Login;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::error::{Error, Result};

/// The default ports.
const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// What is wrong with an address. It quotes no part of it, which may be a password.
type Wrong = &'static str;
type Parsed<T> = std::result::Result<T, Wrong>;

const NO_HOST: Wrong = "a host is missing";
const BRACKETS: Wrong = "an IPv6 address stands in brackets";
const NO_NUMBER: Wrong = "the database is a number";
const NO_OPTION: Wrong = "behind the ? is an option that is not known";
const NO_PATH: Wrong = "the path of a socket begins with /";
const NO_BYTE: Wrong = "a % is not followed by two digits";

/// A parsed address.
pub(crate) struct Address {
    /// Without credentials, and the same for every order of the hosts.
    pub name: String,
    pub kind: Kind,
    /// The nodes to ask first: one for a single server, one or more for a cluster or for sentinels.
    pub seeds: Vec<ConnectionAddr>,
    /// The login of the servers, with an address that stands for that of each.
    pub login: ConnectionInfo,
    /// The protocol that the address names.
    pub protocol: Option<ProtocolVersion>,
}

/// The role of the seeds.
pub(crate) enum Kind {
    Server,
    /// Nodes of a cluster, each of which knows which node serves a key.
    Cluster,
    /// Sentinels.
    Sentinel {
        /// The name of the primary in their configuration.
        primary: String,
        login: Login,
    },
}

/// The parts that all kinds of addresses have.
#[derive(Default)]
struct Parts {
    login: Login,
    db: Option<i64>,
    protocol: Option<ProtocolVersion>,
    sentinel: Login,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Address> {
        parse(url).map_err(|wrong| {
            Error::config(format!(
                "no URL of a server: {wrong} (redis://host:port/database, \
                 redis+cluster://host:port,host:port, redis+sentinel://host:port,host:port/name, \
                 unix:///path)"
            ))
        })
    }
}

fn parse(url: &str) -> Parsed<Address> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    let scheme = scheme.to_ascii_lowercase();
    let (transport, kind) = scheme.split_once('+').unwrap_or((&scheme, ""));
    let is_tls = match (transport, kind) {
        ("unix", "") | ("redis" | "valkey", "unix") => return socket(rest),
        ("redis" | "valkey", "" | "cluster" | "sentinel") => false,
        ("rediss" | "valkeys", "" | "cluster" | "sentinel") => true,
        _ => return Err("its scheme is not known"),
    };
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, rest)) => (Some(login), rest),
        None => (None, rest),
    };
    let mut parts = Parts::new(login)?;
    let rest = parts.options(rest, kind == "sentinel")?;
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (port, (primary, db)) = match kind {
        "sentinel" => (SENTINEL_PORT, path.split_once('/').unwrap_or((path, ""))),
        _ => (SERVER_PORT, ("", path)),
    };
    // Only one server has no list of hosts.
    let hosts = hosts.split(|char| char == ',' && !kind.is_empty());
    let seeds = hosts.map(|host| address(host, port, is_tls));
    let seeds = seeds.collect::<Parsed<Vec<_>>>()?;
    parts.database(db)?;
    let kind = match kind {
        "" => Kind::Server,
        "cluster" if parts.db.unwrap_or_default() != 0 => {
            return Err("a cluster has the database 0 alone")
        }
        "cluster" => Kind::Cluster,
        _ if primary.is_empty() => return Err("the primary's name is missing behind the hosts"),
        _ => {
            let primary = decoded(primary)?;
            if primary.contains(|char: char| char.is_whitespace() || char.is_control()) {
                return Err("the primary's name has white space or a control character");
            }
            let login = parts.sentinel.clone();
            Kind::Sentinel { primary, login }
        }
    };
    parts.address(seeds, kind)
}

fn socket(rest: &str) -> Parsed<Address> {
    let (login, path) = rest.split_at(rest.find('/').ok_or(NO_PATH)?);
    let login = match login.strip_suffix('@') {
        None if !login.is_empty() => return Err(NO_PATH),
        login => login,
    };
    let mut parts = Parts::new(login)?;
    let path = decoded(parts.options(path, false)?)?;
    parts.address(vec![ConnectionAddr::Unix(path.into())], Kind::Server)
}

impl Parts {
    fn new(login: Option<&str>) -> Parsed<Parts> {
        let mut parts = Parts::default();
        let Some(login) = login else {
            return Ok(parts);
        };
        if login.contains(['/', '?', '#', '[', ']']) {
            return Err("in a login / ? # [ ] are written %2F %3F %23 %5B %5D");
        }
        // Some clients take a word without a colon for a user, others for a password.
        let Some((user, password)) = login.split_once(':') else {
            return Err("a login is user:password or :password");
        };
        if !user.is_empty() {
            parts.login = parts.login.set_username(decoded(user)?);
        }
        if !password.is_empty() {
            parts.login = parts.login.set_password(decoded(password)?);
        }
        Ok(parts)
    }

    /// Reads the options at the end, and returns what stands before them.
    fn options<'a>(&mut self, rest: &'a str, is_sentinel: bool) -> Parsed<&'a str> {
        if rest.contains('#') {
            return Err("a # is written %23");
        }
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        for option in options.split('&').filter(|_| !options.is_empty()) {
            let (name, value) = option.split_once('=').ok_or(NO_OPTION)?;
            let value = decoded(value)?;
            match name {
                _ if value.is_empty() => return Err(NO_OPTION),
                "db" => self.database(&value)?,
                "protocol" if self.protocol.is_none() => {
                    self.protocol = Some(match value.as_str() {
                        "2" => ProtocolVersion::RESP2,
                        "3" => ProtocolVersion::RESP3,
                        _ => return Err("the protocol is 2 or 3"),
                    });
                }
                "sentinel-user" if is_sentinel && self.sentinel.username().is_none() => {
                    self.sentinel = self.sentinel.clone().set_username(value);
                }
                "sentinel-password" if is_sentinel && self.sentinel.password().is_none() => {
                    self.sentinel = self.sentinel.clone().set_password(value);
                }
                _ => return Err(NO_OPTION),
            }
        }
        Ok(rest)
    }

    fn database(&mut self, digits: &str) -> Parsed<()> {
        if digits.is_empty() {
            return Ok(());
        }
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NO_NUMBER);
        }
        let db = i64::from(digits.parse::<i32>().map_err(|_| NO_NUMBER)?);
        match self.db.replace(db) {
            Some(other) if other != db => Err("the database is given twice"),
            _ => Ok(()),
        }
    }

    fn address(self, seeds: Vec<ConnectionAddr>, kind: Kind) -> Parsed<Address> {
        let db = self.db.unwrap_or_default();
        let mut login = self.login.set_db(db);
        if let Some(protocol) = self.protocol {
            login = login.set_protocol(protocol);
        }
        let mut hosts: Vec<_> = seeds.iter().map(host_of).collect();
        hosts.sort();
        let name = match &kind {
            Kind::Sentinel { primary, .. } => format!("{}/{primary}/{db}", hosts.join(",")),
            _ => format!("{}/{db}", hosts.join(&format!("/{db},"))),
        };
        let first = seeds.first().cloned().ok_or(NO_HOST)?;
        let first = first.into_connection_info().map_err(|_| NO_HOST)?;
        Ok(Address {
            name,
            kind,
            seeds,
            login: first.set_redis_settings(login),
            protocol: self.protocol,
        })
    }
}

fn address(host: &str, port: u16, is_tls: bool) -> Parsed<ConnectionAddr> {
    let (host, digits) = match host.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(BRACKETS)?;
            if host.is_empty() {
                return Err(NO_HOST);
            }
            host.parse::<Ipv6Addr>().map_err(|_| BRACKETS)?;
            match (rest, rest.strip_prefix(':')) {
                ("", _) => (host, None),
                (_, None) => return Err(BRACKETS),
                (_, digits) => (host, digits),
            }
        }
        None if host.matches(':').count() > 1 => return Err(BRACKETS),
        None => host
            .split_once(':')
            .map_or((host, None), |(host, digits)| (host, Some(digits))),
    };
    let is_known = |char: char| char.is_ascii_alphanumeric() || "-._:".contains(char);
    if host.is_empty() {
        return Err(NO_HOST);
    }
    if !host.chars().all(is_known) {
        return Err("a host has letters, digits and -._ only");
    }
    let port = match digits {
        None => port,
        Some(digits) => match digits.parse() {
            Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => port,
            _ => return Err("a port is a number from 1 to 65535"),
        },
    };
    let host = host.to_string();
    Ok(match is_tls {
        // The certificate is always verified.
        true => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        },
        false => ConnectionAddr::Tcp(host, port),
    })
}

/// Replaces each %XX by its byte.
fn decoded(text: &str) -> Parsed<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or(NO_BYTE)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NO_BYTE);
        }
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| NO_BYTE)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| "the bytes of %XX are no text (UTF-8)")
}

/// `host:port/db`, or the path of a socket.
pub(crate) fn name_of(node: &ConnectionInfo) -> String {
    format!("{}/{}", host_of(node.addr()), node.redis_settings().db())
}

fn host_of(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
            if host.contains(':') =>
        {
            format!("[{host}]:{port}")
        }
        other => other.to_string(),
    }
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

#[allow(clippy::expect_used)]
#[cfg(test)]
mod tests {
    use super::*;

    /// The table of all clients.
    const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../addresses.tsv");

    fn login(login: &Login, prefix: &str) -> String {
        let user = login.username().map(|user| format!(" {prefix}user={user}"));
        let password = login
            .password()
            .map(|password| format!(" {prefix}password={password}"));
        user.unwrap_or_default() + &password.unwrap_or_default()
    }

    /// The address in the form of the table.
    fn rendered(url: &str) -> String {
        let address = match parse(url) {
            Ok(address) => address,
            Err(wrong) => return format!("error: {wrong}"),
        };
        let first = address.seeds.first().expect("a seed");
        let kind = match (&address.kind, first) {
            (Kind::Server, ConnectionAddr::Unix(_)) => "socket",
            (Kind::Server, _) => "server",
            (Kind::Cluster, _) => "cluster",
            (Kind::Sentinel { .. }, _) => "sentinel",
        };
        let tls = matches!(first, ConnectionAddr::TcpTls { .. });
        let mut hosts: Vec<_> = address.seeds.iter().map(host_of).collect();
        hosts.sort();
        let hosts = hosts.join(",");
        let settings = address.login.redis_settings();
        let mut text = format!(
            "{kind}{} {hosts} database={}",
            if tls { " tls" } else { "" },
            settings.db()
        );
        text += &login(settings, "");
        if let Some(protocol) = address.protocol {
            assert_eq!(settings.protocol(), protocol, "{url}");
            text += match protocol {
                ProtocolVersion::RESP3 => " protocol=3",
                _ => " protocol=2",
            };
        }
        if let Kind::Sentinel { primary, login: of } = &address.kind {
            text += &format!(" primary={primary}{}", login(of, "sentinel-"));
        }
        text
    }

    #[test]
    fn every_address_of_the_table_means_what_the_table_says() {
        let table = std::fs::read_to_string(TABLE).expect("the table");
        let mut count = 0;
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let (url, meaning) = line.split_once('\t').expect("a tab");
            assert_eq!(rendered(url), meaning, "{url}");
            if let Some(phrase) = meaning.strip_prefix("error: ") {
                let error = Address::parse(url)
                    .map(drop)
                    .expect_err("an error")
                    .to_string();
                assert!(
                    error.contains(phrase) && !error.contains("secret"),
                    "{error}"
                );
            }
            count += 1;
        }
        assert!(count > 100, "{count} lines");
    }

    #[test]
    fn the_name_has_no_credentials_and_a_fixed_order_of_hosts() {
        let name = |url| parse(url).map(|address| address.name).expect("an address");
        assert_eq!(name("redis://u:secret@h:7000/3"), "h:7000/3");
        assert_eq!(name("redis://[::1]"), "[::1]:6379/0");
        assert_eq!(name("redis+cluster://u:p@b:2,a:1"), "a:1/0,b:2/0");
        assert_eq!(
            name("rediss+sentinel://u:p@b:2,a/main/5?sentinel-password=x"),
            "a:26379,b:2/main/5"
        );
        assert_eq!(name("redis+unix:///tmp/a@b?db=2"), "/tmp/a@b/2");
    }
}
