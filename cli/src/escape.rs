//! The escaping of names, which may contain any bytes, so that they cannot control a terminal.

use std::env::var_os;
use std::fmt::Write;

use unicode_width::UnicodeWidthChar;

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

/// Whether the locale names another character set than UTF-8.
pub fn is_not_utf8() -> bool {
    let mut named = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(var_os);
    let named = named
        .find(|name| !name.is_empty())
        .unwrap_or("UTF-8".into());
    let set = named.to_string_lossy().replace('-', "").to_lowercase();
    !set.contains("utf8")
}

/// Text without characters beyond ASCII: they are escaped, and the mark of [`cut`] is another.
pub fn ascii(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '…' => plain.push('~'),
            '\0'..='\u{7f}' => plain.push(char),
            _ => plain.extend(char.escape_unicode()),
        }
    }
    plain
}

/// The columns of a terminal that text takes.
pub fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

fn columns(char: char) -> usize {
    char.width().unwrap_or_default()
}

/// Those of the characters that come first and fit into this width.
pub fn fitting(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut taken = 0;
    let fits = |char: &char| {
        taken += columns(*char);
        taken <= width
    };
    chars.take_while(fits).collect()
}

/// Text of at most this width, cut in the middle: names often differ at the end.
pub fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.into();
    }
    let end = fitting(text.chars().rev(), most / 2);
    let Some(room) = most.checked_sub(width(&end) + 1) else {
        return String::new();
    };
    let start = fitting(text.chars(), room);
    start
        .chars()
        .chain(['…'])
        .chain(end.chars().rev())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{ascii, cut, json, shown, width, word};

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
        assert_eq!(ascii("g…ße"), "g~\\u{df}e");
        // Of two columns each.
        assert_eq!((width("日本語"), width("größe")), (6, 5));
        for (most, text) in [
            (6, "日本語"),
            (5, "日…語"),
            (4, "…語"),
            (3, "日…"),
            (1, "…"),
        ] {
            assert_eq!(cut("日本語", most), text, "{most}");
        }
    }
}
