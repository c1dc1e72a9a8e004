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

#[cfg(test)]
mod tests {
    use super::slot_of;

    #[test]
    fn a_key_has_the_slot_of_its_tag() {
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"x{foo}y"), 12_182);
        assert_eq!(slot_of(b"{}foo"), slot_of(b"{}foo"));
        assert_ne!(slot_of(b"{}foo"), slot_of(b"foo"));
    }
}
