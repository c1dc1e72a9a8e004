//! The patterns of `KEYS` and `SCAN`, for names that are only in memory.

/// Whether the name matches the pattern: `*`, `?`, `[a-z]`, `[^a-z]`, and `\` before any of them.
///
/// A `*` takes as few bytes as possible; when the rest does not match, only the last `*` takes one more. So the time
/// is bounded by the product of the lengths.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.is_empty() {
        // As in the server: a single star disables the pattern.
        return pattern.is_empty() || pattern == b"*";
    }
    let (mut pattern, mut name) = (pattern, name);
    let mut last_star = None;
    loop {
        if let [b'*', behind @ ..] = pattern {
            last_star = Some((behind, name));
            pattern = behind;
            continue;
        }
        match (name.split_first(), one(pattern)) {
            (None, None) => return true,
            (Some((byte, rest)), Some((element, behind))) if element.takes(*byte) => {
                (pattern, name) = (behind, rest);
            }
            _ => match last_star {
                Some((behind, [_, rest @ ..])) => {
                    last_star = Some((behind, rest));
                    (pattern, name) = (behind, rest);
                }
                _ => return false,
            },
        }
    }
}

/// An element of a pattern, for one byte of a name.
enum Element<'a> {
    Any,
    Byte(u8),
    /// The pattern behind `[`, up to its end.
    Class(&'a [u8]),
}

/// The first element of a pattern, and the rest.
fn one(pattern: &[u8]) -> Option<(Element<'_>, &[u8])> {
    Some(match pattern {
        [] => return None,
        [b'?', behind @ ..] => (Element::Any, behind),
        [b'[', class @ ..] => (Element::Class(class), behind_class(class)),
        [b'\\', byte, behind @ ..] | [byte, behind @ ..] => (Element::Byte(*byte), behind),
    })
}

impl Element<'_> {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Element::Any => true,
            Element::Byte(own) => *own == byte,
            Element::Class([b'^', class @ ..]) => !class_has(class, byte),
            Element::Class(class) => class_has(class, byte),
        }
    }
}

fn class_has(class: &[u8], byte: u8) -> bool {
    // As in the server, ranges compare bytes as C's `char`, whose sign depends on the platform.
    let char = |byte: u8| byte as std::ffi::c_char;
    let mut left = class;
    let mut has = false;
    while let Some((first, last, behind)) = member(left) {
        let (low, high) = (char(first).min(char(last)), char(first).max(char(last)));
        has |= (low..=high).contains(&char(byte));
        left = behind;
    }
    has
}

/// The first member of a class as a range of bytes, and the rest; `None` at the end of the class.
fn member(class: &[u8]) -> Option<(u8, u8, &[u8])> {
    match class {
        [] | [b']', ..] => None,
        [b'\\', byte, behind @ ..] => Some((*byte, *byte, behind)),
        [first, b'-', last, behind @ ..] => Some((*first, *last, behind)),
        [byte, behind @ ..] => Some((*byte, *byte, behind)),
    }
}

fn behind_class(class: &[u8]) -> &[u8] {
    let mut left = class.strip_prefix(b"^").unwrap_or(class);
    while let Some((_, _, behind)) = member(left) {
        left = behind;
    }
    left.get(1..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_are_those_of_the_server() {
        for (pattern, name, is) in [
            ("", "", true),
            ("*", "", true),
            ("**", "", false),
            ("*", "a", true),
            ("a*", "a", true),
            ("a*b*c", "a-bb-c", true),
            ("a*b*c", "a-bb-c-", false),
            ("*aab", "aaaaaab", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^]x", "bx", true),
            ("[]x", "bx", false),
            ("[ab", "b", true),
            ("[a\\]]x", "]x", true),
            ("[a-]x", "-x", false),
            ("[a-]x", "`", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("lock:{*}", "lock:{a}", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                is,
                "{pattern} {name}"
            );
        }
        assert!(matches(b"\xff\x00*", b"\xff\x00\xfe"));
    }

    #[test]
    fn many_stars_cost_no_more_than_the_product_of_the_lengths() {
        let (pattern, name) = ("a*".repeat(500) + "b", "a".repeat(5_000));
        assert!(!matches(pattern.as_bytes(), name.as_bytes()));
    }
}
