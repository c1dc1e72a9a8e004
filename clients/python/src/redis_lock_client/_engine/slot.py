"""The hash slot of a key in a cluster."""

from __future__ import annotations

import binascii
import functools

SLOTS = 16_384


def slot_of(key: bytes) -> int:
    """The slot of a key: that of its hash tag (the text between the first braces), or of the whole key without one."""
    begin = key.find(b"{")
    if begin >= 0:
        end = key.find(b"}", begin + 1)
        if end > begin + 1:
            key = key[begin + 1 : end]
    return binascii.crc_hqx(key, 0) % SLOTS


@functools.lru_cache(maxsize=1_024)
def _tag_of(slot: int) -> bytes:
    number = 0
    while slot_of(b"%d" % number) != slot:
        number += 1
    return b"%d" % number


def name_in_slot(name: bytes, slot: int) -> bytes:
    """This name with a hash tag behind it, so that it is in this slot. Tries 16,384 tags on average."""
    return name + b":{" + _tag_of(slot) + b"}"
