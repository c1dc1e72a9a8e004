//! Names of sibling keys, as Redisson makes them, and the slot of a name in a cluster.

use smallvec::SmallVec;

/// Slots of a cluster.
pub const SLOTS: usize = 16_384;

/// The slot of a key, by the cluster specification: CRC16 of the hash tag, or of the whole name.
pub fn slot_of(name: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(hash_tag(name)) % SLOTS as u16
}

/// The part between the first `{` and the next `}`, if it is not empty; otherwise the whole name.
fn hash_tag(name: &[u8]) -> &[u8] {
    let tagged = || {
        let open = name.iter().position(|byte| *byte == b'{')?;
        let rest = name.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    };
    tagged().unwrap_or(name)
}

/// Redisson's `prefixName`: `prefix:name` if the name contains a `{`, otherwise `prefix:{name}`. Names of usual length
/// need no allocation.
pub fn prefixed(prefix: &str, name: &[u8]) -> SmallVec<[u8; 128]> {
    let mut prefixed = SmallVec::from_slice(prefix.as_bytes());
    prefixed.push(b':');
    push_tagged(&mut prefixed, name);
    prefixed
}

/// Adds the name, in braces unless it has a `{` anywhere.
fn push_tagged(to: &mut SmallVec<[u8; 128]>, name: &[u8]) {
    let is_bare = !name.contains(&b'{');
    to.extend_from_slice(if is_bare { b"{" } else { b"" });
    to.extend_from_slice(name);
    to.extend_from_slice(if is_bare { b"}" } else { b"" });
}

pub(crate) const PERMITS: &[u8] = b":timeout";

/// Redisson's `suffixName`: `name:suffix` where the name has a `{` anywhere, else `{name}:suffix`.
pub(crate) fn suffixed(name: &[u8], suffix: &[u8]) -> SmallVec<[u8; 128]> {
    let mut suffixed = SmallVec::new();
    push_tagged(&mut suffixed, name);
    suffixed.push(b':');
    suffixed.extend_from_slice(suffix);
    suffixed
}

/// The part between the braces of `{name}`, if it contains no other opening brace.
pub(crate) fn unbraced(name: &[u8]) -> Option<&[u8]> {
    let bare = name.strip_prefix(b"{")?.strip_suffix(b"}")?;
    (!bare.contains(&b'{')).then_some(bare)
}

/// Whether the whole name is in braces: the keys beside `{k}` have the names of those beside `k`.
pub fn is_braced(name: &[u8]) -> bool {
    unbraced(name).is_some()
}

/// The permit set of a semaphore.
pub fn permits_of(name: &[u8]) -> SmallVec<[u8; 128]> {
    suffixed(name, b"timeout")
}

/// The semaphore whose permit set has this name.
pub fn semaphore_of(name: &[u8]) -> Option<&[u8]> {
    let stem = name.strip_suffix(PERMITS)?;
    unbraced(stem).or_else(|| stem.contains(&b'{').then_some(stem))
}

/// For every slot the smallest number whose digits, as a hash tag, are in it.
pub fn slot_tags() -> Vec<u32> {
    let mut tags = vec![None; SLOTS];
    let mut missing = SLOTS;
    for number in 0u32.. {
        if missing == 0 {
            break;
        }
        let slot = usize::from(slot_of(number.to_string().as_bytes()));
        if let Some(tag @ None) = tags.get_mut(slot) {
            *tag = Some(number);
            missing -= 1;
        }
    }
    tags.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31C3 % SLOTS as u16);
        assert_eq!(slot_of(b"a{user1000}b"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{}{bar}"), slot_of(b"foo{}{bar}"));
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
    }

    #[test]
    fn every_slot_has_a_tag() {
        let tags = slot_tags();
        assert_eq!(tags.len(), SLOTS);
        for (slot, tag) in tags.iter().enumerate() {
            assert_eq!(
                usize::from(slot_of(format!("x:{{{tag}}}").as_bytes())),
                slot
            );
        }
    }

    #[test]
    fn derived_names_follow_redisson() {
        assert_eq!(prefixed("p", b"k")[..], b"p:{k}"[..]);
        assert_eq!(prefixed("p", b"{a}k")[..], b"p:{a}k"[..]);
        assert_eq!(prefixed("p", b"a{")[..], b"p:a{"[..]);
        assert_eq!(permits_of(b"k")[..], b"{k}:timeout"[..]);
        assert_eq!(permits_of(b"{a}k")[..], b"{a}k:timeout"[..]);
    }

    #[test]
    fn a_semaphore_is_found_by_the_name_of_its_permits() {
        for name in [&b"k"[..], b"{a}k", b"a{", b"", b"k:timeout"] {
            assert_eq!(semaphore_of(&permits_of(name)), Some(name));
        }
        assert_eq!(semaphore_of(b"{k}:other"), None);
        assert_eq!(semaphore_of(b"k:timeout"), None);
    }

    #[test]
    fn a_name_in_braces_shares_its_sibling_keys_with_the_one_without() {
        for (name, bare) in [("{k}", "k"), ("{}", ""), ("{a}}", "a}")] {
            assert!(is_braced(name.as_bytes()), "{name}");
            assert_eq!(permits_of(name.as_bytes()), permits_of(bare.as_bytes()));
        }
        for name in ["k", "", "a}", "{a}b", "a{b}", "{{a}}", "{a{b}", "{", "}"] {
            assert!(!is_braced(name.as_bytes()), "{name}");
        }
    }
}
