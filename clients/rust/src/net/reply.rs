//! Access to the parts of a reply.

use std::time::Duration;

use redis::Value;

/// A field of a map, which RESP2 sends as a flat array; None if it is nil.
pub(crate) fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let found = match map {
        Value::Map(pairs) => {
            let pair = pairs.iter().find(|(key, _)| bytes(key) == name.as_bytes());
            pair.map(|(_, value)| value)
        }
        _ => list(map).chunks_exact(2).find_map(|pair| match pair {
            [key, value] if bytes(key) == name.as_bytes() => Some(value),
            _ => None,
        }),
    };
    found.filter(|value| **value != Value::Nil)
}

/// A field of a map that is a list; empty if it is missing.
pub(crate) fn items<'a>(map: &'a Value, name: &str) -> &'a [Value] {
    field(map, name).map_or(&[], list)
}

/// A line of `INFO`; the name ends with a colon.
pub(crate) fn line<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    line.map(str::trim)
}

pub(crate) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        _ => &[],
    }
}

pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes.clone(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone().into_bytes(),
        _ => Vec::new(),
    }
}

pub(crate) fn text(value: &Value) -> String {
    String::from_utf8_lossy(&bytes(value)).into_owned()
}

pub(crate) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// A non-negative number; the server sends -1 for none.
pub(crate) fn count(map: &Value, name: &str) -> Option<u64> {
    let number = field(map, name).and_then(number)?;
    u64::try_from(number).ok()
}

pub(crate) fn span(map: &Value, name: &str) -> Option<Duration> {
    count(map, name).map(Duration::from_millis)
}
