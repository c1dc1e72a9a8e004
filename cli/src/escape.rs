//! The escaping of names, which may contain any bytes, so that they cannot control a terminal.

use std::fmt::Write;

/// Keeps printable text, doubles backslashes and escapes all else: `\n`, `\u{202e}`, `\xff`.
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\'' | '"' => text.push(char),
                // Escapes unprintable characters, combining marks and backslashes.
                _ => text.extend(char.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// As [`shown`], in quotation marks unless it is one word: `"nightly report"`.
pub fn word(bytes: &[u8]) -> String {
    let text = shown(bytes);
    // Other white space is escaped.
    match !text.is_empty() && !text.contains([' ', '"']) {
        true => text,
        false => format!("\"{}\"", text.replace('"', "\\\"")),
    }
}

/// JSON in one line. `serde_json` does not escape DEL and the control characters beyond ASCII, so they are escaped
/// here.
pub fn json(value: &serde_json::Value) -> String {
    let mut text = String::new();
    for char in value.to_string().chars() {
        match char {
            '\u{7f}'..='\u{9f}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(char));
            }
            _ => text.push(char),
        }
    }
    text
}

/// Text of at most `width` characters, cut in the middle: names often differ at the end.
pub fn cut(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.into();
    }
    let end = width / 2;
    let start = text.chars().take(width.saturating_sub(end + 1));
    start
        .chain(['…'])
        .chain(text.chars().skip(count - end))
        .take(width)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{cut, json, shown, word};

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown(b"orders:42"), "orders:42");
        assert_eq!(shown("größe 'a' \"b\"".as_bytes()), "größe 'a' \"b\"");
        assert_eq!(shown(b"\x1b[2J"), "\\u{1b}[2J");
        assert_eq!(shown(b"a\nb\tc\x7f\\"), "a\\nb\\tc\\u{7f}\\\\");
        assert_eq!(shown(b"\xff\xfe"), "\\xff\\xfe");
        assert_eq!(shown("\u{202e}x\u{9b}".as_bytes()), "\\u{202e}x\\u{9b}");
        for byte in 0..=255 {
            assert!(
                shown(&[byte]).chars().all(|char| !char.is_control()),
                "{byte}"
            );
        }
    }

    #[test]
    fn json_without_control_characters_parses_to_the_same_value() {
        let name: String = (0..=0xa1).filter_map(char::from_u32).collect();
        let value = serde_json::json!({ "key": name });
        let text = json(&value);
        assert!(!text.chars().any(char::is_control), "{text}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).ok(),
            Some(value)
        );
    }

    #[test]
    fn a_name_that_is_not_one_word_is_quoted() {
        assert_eq!(word(b"db1:4711"), "db1:4711");
        assert_eq!(word(b"x token=9"), "\"x token=9\"");
        assert_eq!(word(b"a\"b"), "\"a\\\"b\"");
        assert_eq!(word(b""), "\"\"");
    }

    #[test]
    fn a_long_name_is_cut_in_the_middle() {
        for (width, text) in [(7, "abcdefg"), (6, "ab…efg"), (3, "a…g"), (1, "…"), (0, "")] {
            assert_eq!(cut("abcdefg", width), text);
        }
        assert_eq!(cut("größe", 4), "g…ße");
    }
}
