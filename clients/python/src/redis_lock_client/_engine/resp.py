"""The protocol of the server, RESP2 and RESP3: requests to bytes, and bytes to replies.

Replies keep the server's words. redis-py's parsers make exceptions of error replies and drop the code of some; here the
code decides what follows, so the text is kept as it is.
"""

from __future__ import annotations

from typing import Any, Union

Word = Union[bytes, int]


class Status(str):
    """A simple string, such as ``OK`` or ``QUEUED``."""

    __slots__ = ()


class ErrorReply:
    """An error reply: its text without the leading ``-``."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Push(list[Any]):
    """A push message of RESP3."""

    __slots__ = ()


class ProtocolError(Exception):
    """Bytes that are no RESP."""


class _Incomplete(Exception):
    """The rest of the reply has not arrived."""


def pack(*words: Word) -> bytes:
    """A request."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = b"%d" % word if isinstance(word, int) else word
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Parser:
    """Cuts the received bytes into replies."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Any]:
        """The replies that are complete with these bytes.

        :raises ProtocolError: when the bytes are no RESP.
        """
        if self._rest:
            data = self._rest + data
        replies: list[Any] = []
        place = 0
        try:
            while place < len(data):
                reply, place = _read(data, place)
                replies.append(reply)
        except _Incomplete:
            pass
        except (ValueError, IndexError, RecursionError) as error:
            raise ProtocolError("bytes that are no reply") from error
        self._rest = data[place:]
        return replies


def _read(data: bytes, place: int) -> tuple[Any, int]:
    end = data.find(b"\r\n", place)
    if end < 0:
        raise _Incomplete
    kind = data[place]
    line = data[place + 1 : end]
    place = end + 2
    if kind == 0x3A:  # ":"
        return int(line), place
    if kind == 0x2B:  # "+"
        return Status(line.decode("utf-8", "replace")), place
    if kind == 0x2D:  # "-"
        return ErrorReply(line.decode("utf-8", "replace")), place
    if kind in (0x24, 0x3D, 0x21):  # "$", "=", "!"
        return _read_bulk(kind, int(line), data, place)
    if kind == 0x5F:  # "_"
        return None, place
    if kind in (0x2A, 0x7E, 0x3E, 0x25, 0x7C):  # "*", "~", ">", "%", "|"
        return _read_list(kind, int(line), data, place)
    if kind == 0x23:  # "#"
        return line == b"t", place
    if kind in (0x2C, 0x28):  # ",", "("
        return line, place
    raise ProtocolError("bytes that are no reply")


def _read_bulk(kind: int, length: int, data: bytes, place: int) -> tuple[Any, int]:
    if length < 0:
        return None, place
    if place + length + 2 > len(data):
        raise _Incomplete
    bulk = data[place : place + length]
    place += length + 2
    if kind == 0x21:
        return ErrorReply(bulk.decode("utf-8", "replace")), place
    return (bulk[4:] if kind == 0x3D else bulk), place


def _read_list(kind: int, length: int, data: bytes, place: int) -> tuple[Any, int]:
    if length < 0:
        return None, place
    items: list[Any] = Push() if kind == 0x3E else []
    # A map is a flat list of keys and values, as in RESP2.
    for _ in range(length * 2 if kind in (0x25, 0x7C) else length):
        item, place = _read(data, place)
        items.append(item)
    if kind == 0x7C:  # attributes, before the reply that they belong to
        return _read(data, place)
    return items, place


def field(reply: Any, name: bytes) -> Any:
    """The value of a field of a map; None when it is missing."""
    if not isinstance(reply, list):
        return None
    for place in range(0, len(reply) - 1, 2):
        if reply[place] == name:
            return reply[place + 1]
    return None
