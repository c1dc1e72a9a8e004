//! The names of a read-write lock's fields and of the keys beside it, as Redisson makes them.

use smallvec::SmallVec;

use super::super::slot_of;

/// The field that says who holds: readers or a writer.
pub const MODE_FIELD: &[u8] = b"mode";

const WRITE_SUFFIX: &[u8] = b":write";

const TIMEOUT_SUFFIX: &[u8] = b":rwlock_timeout:";

/// A name that is made for a moment; of usual length it needs no allocation.
pub type Name = SmallVec<[u8; 128]>;

/// The field of an owner's WRITE holds.
pub fn write_field(owner: &[u8]) -> Name {
    let mut field = Name::from_slice(owner);
    field.extend_from_slice(WRITE_SUFFIX);
    field
}

/// Whose WRITE holds a field counts, if it is such a field.
pub fn writer_of(field: &[u8]) -> Option<&[u8]> {
    field.strip_suffix(WRITE_SUFFIX)
}

/// Whether an owner of this name could not be told from Redisson's own fields.
pub fn is_reserved(owner: &[u8]) -> bool {
    owner == MODE_FIELD || writer_of(owner).is_some()
}

/// What the names of all timeouts of an owner's READ holds begin with.
pub fn timeout_prefix(lock: &[u8], owner: &[u8]) -> Name {
    let mut name = suffixed(lock, owner);
    name.extend_from_slice(TIMEOUT_SUFFIX);
    name
}

/// The timeout of an owner's n-th READ hold, by that prefix.
pub fn timeout_name(prefix: &Name, n: u32) -> Name {
    let mut name = prefix.clone();
    name.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    name
}

/// The key of a read-write lock's fencing token.
pub fn token_name(lock: &[u8]) -> Name {
    suffixed(lock, b"rwlock_token")
}

/// Whether a key of this name would be one of those beside some lock, which are written over when that lock is
/// taken.
pub fn is_beside_a_lock(name: &[u8]) -> bool {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let (before, number) = name.split_at(name.len() - digits.count());
    match number {
        [] => name.ends_with(b":rwlock_token"),
        _ => before.ends_with(TIMEOUT_SUFFIX),
    }
}

/// Whether the keys beside the lock are in its slot of a cluster.
pub fn siblings_stay(lock: &[u8], owner: &[u8]) -> bool {
    let slot = slot_of(lock);
    slot_of(&token_name(lock)) == slot && slot_of(&timeout_prefix(lock, owner)) == slot
}

/// The other name whose siblings have the same names: `k` and `{k}`, where `k` has no `{`.
pub fn twin_of(lock: &[u8]) -> Option<Name> {
    if !lock.contains(&b'{') {
        return Some(braced(lock));
    }
    unbraced(lock).map(Name::from_slice)
}

/// The other holds of READ, as lock and owner, whose timeouts have the names of this one's: a part of the name
/// may belong to the lock or to the owner (`{k}` and `a:b`, `{k}:a` and `b`). No owner has more bytes than that.
/// The twin with the same owner is not among them.
pub fn same_timeouts(lock: &[u8], owner: &[u8], max_owner: usize) -> Vec<(Name, Name)> {
    if !lock.contains(&b':') && !owner.contains(&b':') {
        return Vec::new();
    }
    let all = suffixed(lock, owner);
    let first = all.len().saturating_sub(max_owner.saturating_add(1));
    let colons = (first..all.len()).filter(|at| all.get(*at) == Some(&b':'));
    let mut same = Vec::new();
    for colon in colons {
        let (Some(stem), Some(other)) = (all.get(..colon), all.get(colon + 1..)) else {
            continue;
        };
        if other.is_empty() || other == owner || is_reserved(other) || !stem.contains(&b'{') {
            continue;
        }
        for name in [Some(stem), unbraced(stem)].into_iter().flatten() {
            same.push((Name::from_slice(name), Name::from_slice(other)));
        }
    }
    same
}

/// What stands between the braces of `{name}`, if no other brace opens there.
fn unbraced(name: &[u8]) -> Option<&[u8]> {
    let bare = name.strip_prefix(b"{")?.strip_suffix(b"}")?;
    (!bare.contains(&b'{')).then_some(bare)
}

fn braced(name: &[u8]) -> Name {
    let mut braced = Name::from_slice(b"{");
    braced.extend_from_slice(name);
    braced.push(b'}');
    braced
}

/// Redisson's `suffixName`: `name:suffix` where the name has a `{` anywhere, else `{name}:suffix`.
fn suffixed(lock: &[u8], suffix: &[u8]) -> Name {
    let mut name = match lock.contains(&b'{') {
        true => Name::from_slice(lock),
        false => braced(lock),
    };
    name.push(b':');
    name.extend_from_slice(suffix);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_redisson() {
        let timeout = |lock: &str| timeout_name(&timeout_prefix(lock.as_bytes(), b"u:1"), 2);
        assert_eq!(timeout("k")[..], b"{k}:u:1:rwlock_timeout:2"[..]);
        assert_eq!(timeout("{a}k")[..], b"{a}k:u:1:rwlock_timeout:2"[..]);
        assert_eq!(timeout("a{")[..], b"a{:u:1:rwlock_timeout:2"[..]);
        assert_eq!(token_name(b"k")[..], b"{k}:rwlock_token"[..]);
        assert_eq!(write_field(b"u:1")[..], b"u:1:write"[..]);
    }

    #[test]
    fn owners_that_look_like_fields_are_reserved() {
        for owner in [&b"mode"[..], b":write", b"u:write"] {
            assert!(is_reserved(owner));
        }
        for owner in [&b"Mode"[..], b"write", b"u:write:1", b"u:1"] {
            assert!(!is_reserved(owner));
        }
    }

    #[test]
    fn keys_beside_a_lock_are_known_by_their_names() {
        for lock in ["k", "{a}k", "a{", "k:1"] {
            let prefix = timeout_prefix(lock.as_bytes(), b"u:1");
            let beside = [token_name(lock.as_bytes()), timeout_name(&prefix, 12)];
            assert!(beside.iter().all(|name| is_beside_a_lock(name)), "{lock}");
            assert!(!is_beside_a_lock(&prefix) && !is_beside_a_lock(lock.as_bytes()));
        }
        for name in [
            "",
            "1",
            "rwlock_token",
            "{k}:rwlock_token:1",
            "{k}:rwlock_token1",
        ] {
            assert!(!is_beside_a_lock(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn twins_are_names_with_and_without_braces() {
        for (lock, twin) in [
            ("k", Some("{k}")),
            ("{k}", Some("k")),
            ("", Some("{}")),
            ("{}", Some("")),
            ("a}", Some("{a}}")),
            ("{a}}", Some("a}")),
            ("{a}b", None),
            ("a{b}", None),
            ("{{a}}", None),
            ("{a{b}", None),
            ("{", None),
        ] {
            let found = twin_of(lock.as_bytes());
            assert_eq!(found.as_deref(), twin.map(str::as_bytes), "{lock}");
            if let Some(twin) = found {
                assert_eq!(token_name(&twin), token_name(lock.as_bytes()), "{lock}");
            }
        }
    }

    #[test]
    fn all_holds_with_timeouts_of_the_same_names_are_found() {
        let same = |lock: &str, owner: &str| -> Vec<(String, String)> {
            let text = |name: Name| String::from_utf8_lossy(&name).into_owned();
            let same = same_timeouts(lock.as_bytes(), owner.as_bytes(), 256).into_iter();
            same.map(|(lock, owner)| (text(lock), text(owner)))
                .collect()
        };
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = |(lock, owner): &(&str, &str)| (String::from(*lock), String::from(*owner));
            pairs.iter().map(owned).collect()
        };
        assert_eq!(same("k", "o"), []);
        assert_eq!(same("{k}", "o"), []);
        assert_eq!(same("{a}k", "o"), []);
        assert_eq!(same("k", "u:7"), pairs(&[("{k}:u", "7")]));
        assert_eq!(same("{k}:u", "7"), pairs(&[("{k}", "u:7"), ("k", "u:7")]));
        assert_eq!(same("{k}", "u:"), []);
        assert_eq!(
            same("{k}", "u:write:x"),
            pairs(&[("{k}:u", "write:x"), ("{k}:u:write", "x")])
        );
        assert_eq!(same("a:b", "c"), pairs(&[("{a", "b}:c")]));
        // Whatever is found finds its way back.
        for (lock, owner) in same("{k}:a:b", "c:d") {
            let back = same(&lock, &owner);
            assert!(
                back.contains(&("{k}:a:b".into(), "c:d".into())),
                "{lock} {owner}"
            );
            assert_eq!(
                timeout_prefix(lock.as_bytes(), owner.as_bytes()),
                timeout_prefix(b"{k}:a:b", b"c:d")
            );
        }
        let long = "x:".repeat(1_000);
        assert_eq!(
            same_timeouts(format!("{{k}}:{long}").as_bytes(), b"o", 20).len(),
            10
        );
    }

    #[test]
    fn in_a_cluster_a_name_must_keep_its_siblings() {
        for lock in ["k", "{a}k", "x{a}y", "k:1"] {
            assert!(siblings_stay(lock.as_bytes(), b"u:1"), "{lock}");
        }
        for lock in ["", "a}b", "a{", "a{}b", "}"] {
            assert!(!siblings_stay(lock.as_bytes(), b"u:1"), "{lock}");
        }
        assert!(!siblings_stay(b"a{", b"b}"));
    }
}
