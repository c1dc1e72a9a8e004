//! The names of a read-write lock's fields and sibling keys, as Redisson makes them.

use smallvec::SmallVec;

use crate::lock::slot::{suffixed, unbraced};
use crate::lock::slot_of;

/// The field with the mode: `read` or `write`.
pub const MODE_FIELD: &[u8] = b"mode";

const WRITE_SUFFIX: &[u8] = b":write";

const TIMEOUT_SUFFIX: &[u8] = b":rwlock_timeout:";

/// A temporary name; at usual lengths it needs no allocation.
pub type Name = SmallVec<[u8; 128]>;

/// The field that counts an owner's WRITE holds.
pub fn write_field(owner: &[u8]) -> Name {
    let mut field = Name::from_slice(owner);
    field.extend_from_slice(WRITE_SUFFIX);
    field
}

/// The owner whose WRITE holds this field counts, if it is such a field.
pub fn writer_of(field: &[u8]) -> Option<&[u8]> {
    field.strip_suffix(WRITE_SUFFIX)
}

/// Whether an owner of this name would be indistinguishable from one of Redisson's own fields.
pub fn is_reserved(owner: &[u8]) -> bool {
    owner == MODE_FIELD || writer_of(owner).is_some()
}

/// The common prefix of the names of an owner's timeouts.
pub fn timeout_prefix(lock: &[u8], owner: &[u8]) -> Name {
    let mut name = suffixed(lock, owner);
    name.extend_from_slice(TIMEOUT_SUFFIX);
    name
}

/// The name of the timeout of an owner's n-th READ hold, from that prefix.
pub fn timeout_name(prefix: &[u8], n: u32) -> Name {
    // (A clone would go byte by byte.)
    let mut name = Name::from_slice(prefix);
    name.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    name
}

/// The key of a read-write lock's token record.
pub fn token_name(lock: &[u8]) -> Name {
    suffixed(lock, b"rwlock_token")
}

/// Whether a key of this name would be a sibling key of some lock, which is overwritten when that lock is granted.
pub fn is_beside_a_lock(name: &[u8]) -> bool {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let (before, number) = name.split_at(name.len() - digits.count());
    match number {
        [] => name.ends_with(b":rwlock_token"),
        _ => before.ends_with(TIMEOUT_SUFFIX),
    }
}

/// Whether the sibling keys are in the lock's slot of a cluster.
pub fn siblings_stay(lock: &[u8], owner: &[u8]) -> bool {
    let slot = slot_of(lock);
    slot_of(&token_name(lock)) == slot && slot_of(&timeout_prefix(lock, owner)) == slot
}

/// The most colons of a lock's name and an owner at which a part of the name may belong to either.
const MOST_COLONS: usize = 16;

/// Whether another READ hold (lock, owner) has a first timeout of the same name and `is_so` is true for it: `{k}` with
/// `a:b`, and `{k}:a` with `b`. Also true if more than [`MOST_COLONS`] colons give such a pair: then some are not
/// asked.
pub fn any_with_same_timeouts(
    (first, owner): (&[u8], &[u8]),
    mut is_so: impl FnMut(&[u8], &[u8]) -> bool,
) -> bool {
    let prefix = first.strip_suffix(b"1").unwrap_or(first);
    let all = prefix.strip_suffix(TIMEOUT_SUFFIX).unwrap_or(prefix);
    // The lock's part of the name contains a brace.
    let mut from = all.iter().position(|byte| *byte == b'{').unwrap_or(0);
    let mut left = MOST_COLONS;
    loop {
        let rest = all.get(from..).unwrap_or_default();
        let Some(colon) = rest.iter().position(|byte| *byte == b':') else {
            return false;
        };
        let (stem, other) = all.split_at(from + colon);
        let other = other.get(1..).unwrap_or_default();
        from += colon + 1;
        if other.is_empty() || other == owner || is_reserved(other) {
            continue;
        }
        if left == 0 {
            return true;
        }
        left -= 1;
        if is_so(stem, other) || unbraced(stem).is_some_and(|stem| is_so(stem, other)) {
            return true;
        }
    }
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
    fn a_name_with_too_many_colons_may_belong_to_another_hold() {
        let may_share = |colons: usize| {
            let owner = format!("{}o", "o:".repeat(colons));
            let first = timeout_name(&timeout_prefix(b"k", owner.as_bytes()), 1);
            any_with_same_timeouts((&first, owner.as_bytes()), |_, _| false)
        };
        assert!(!may_share(MOST_COLONS));
        assert!(may_share(MOST_COLONS + 1));
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
    fn sibling_keys_are_recognised_by_name() {
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

    fn all_with_same_timeouts(lock: &str, owner: &str) -> Vec<(Name, Name)> {
        let mut all = Vec::new();
        let first = timeout_name(&timeout_prefix(lock.as_bytes(), owner.as_bytes()), 1);
        let hold = (&first[..], owner.as_bytes());
        assert!(!any_with_same_timeouts(hold, |lock, owner| {
            all.push((Name::from_slice(lock), Name::from_slice(owner)));
            false
        }));
        assert_eq!(any_with_same_timeouts(hold, |_, _| true), !all.is_empty());
        all
    }

    #[test]
    fn all_holds_with_timeouts_of_the_same_names_are_found() {
        let same = |lock: &str, owner: &str| -> Vec<(String, String)> {
            let text = |name: Name| String::from_utf8_lossy(&name).into_owned();
            all_with_same_timeouts(lock, owner)
                .into_iter()
                .map(|(lock, owner)| (text(lock), text(owner)))
                .collect()
        };
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = |(lock, owner): &(&str, &str)| (String::from(*lock), String::from(*owner));
            pairs.iter().map(owned).collect()
        };
        assert_eq!(same("k", "o"), []);
        assert_eq!(same("{k}", "o"), []);
        assert_eq!(same("{a}k", "o"), []);
        assert_eq!(same("x:{k}", "o"), []);
        assert_eq!(same("k", "u:7"), pairs(&[("{k}:u", "7")]));
        assert_eq!(same("{k}:u", "7"), pairs(&[("{k}", "u:7"), ("k", "u:7")]));
        assert_eq!(same("{k}", "u:"), []);
        assert_eq!(
            same("{k}", "u:write:x"),
            pairs(&[("{k}:u", "write:x"), ("{k}:u:write", "x")])
        );
        assert_eq!(same("a:b", "c"), pairs(&[("{a", "b}:c")]));
        // The relation is symmetric.
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
