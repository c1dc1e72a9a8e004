//! As much of HTTP as the exporter and Prometheus need.

use std::io::{Read, Write};
use std::net::TcpStream;

use redis_lock_harness::patience;
use serde_json::Value;

/// The body of a page; `None` when it is not served, or not with the status 200.
pub fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(patience())).ok()?;
    // Version 1.0: the body ends with the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    let is_ok = head.split(' ').nth(1) == Some("200");
    is_ok.then(|| body.to_string())
}

/// The `data` of a reply of Prometheus.
///
/// # Errors
/// The reply, when it is not a success.
pub fn ask(port: u16, path: &str) -> Result<Value, String> {
    let body = get(port, path).ok_or_else(|| format!("{path}: no reply"))?;
    let mut reply: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
    match reply["status"] == "success" {
        true => Ok(reply["data"].take()),
        false => Err(format!("{path}: {reply}")),
    }
}

/// A value of a query string.
pub fn encoded(value: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(byte).collect()
}
