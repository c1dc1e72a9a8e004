"""What the lock guards: a count and the last fencing token, in a file that all processes of a cell have mapped.

A lost update is a lock that two had at a time. The update is in two steps, and now and then other contenders get the
chance to come between.
"""

import mmap
import struct

LOCK = "lock:clients"
SIZE = 16
_WORDS = struct.Struct("=qq")


class Guarded:
    def __init__(self, path):
        with open(path, "r+b") as file:
            self.words = mmap.mmap(file.fileno(), SIZE)

    def enter(self, token):
        """Returns the count. Fails when a new holder's token is not above that of the one before."""
        count, last = _WORDS.unpack_from(self.words)
        if token:
            if token <= last:
                raise RuntimeError(f"token {token} after {last}")
            _WORDS.pack_into(self.words, 0, count, token)
        return count

    def leave(self, count):
        struct.pack_into("=q", self.words, 0, count + 1)

    def close(self):
        self.words.close()


def create(path):
    with open(path, "wb") as file:
        file.write(bytes(SIZE))


def counted(path):
    with open(path, "rb") as file:
        return _WORDS.unpack(file.read())[0]
