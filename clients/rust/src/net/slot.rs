//! The hash slot of a key in a cluster.

/// The slot of a key: that of its hash tag (the text between the first braces), or of the whole key without one.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let len = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..len).filter(|tag| !tag.is_empty())
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % 16_384
}

/// This name with a hash tag behind it, so that it is in this slot. Tries 16,384 tags on average.
pub(crate) fn name_in_slot(name: &str, slot: u16) -> Vec<u8> {
    let tags = (0..u32::MAX).map(|tag| tag.to_string());
    let tag = tags.into_iter().find(|tag| slot_of(tag.as_bytes()) == slot);
    format!("{name}:{{{}}}", tag.unwrap_or_default()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::{name_in_slot, slot_of};

    #[test]
    fn every_slot_has_a_tag() {
        for slot in [0, 1, 12_182, 16_383] {
            assert_eq!(slot_of(&name_in_slot("lock:tickets:x", slot)), slot);
        }
    }

    #[test]
    fn a_key_has_the_slot_of_its_tag() {
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"x{foo}y"), 12_182);
        assert_eq!(slot_of(b"{}foo"), slot_of(b"{}foo"));
        assert_ne!(slot_of(b"{}foo"), slot_of(b"foo"));
    }
}
