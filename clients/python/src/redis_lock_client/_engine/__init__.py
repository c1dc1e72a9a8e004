"""The engine: waits, holds and releases in one asyncio loop, over connections of its own.

``tickets.table`` and ``resp`` decide without input or output; ``link`` and ``dial`` are the connections; ``router``
knows the nodes; ``caller`` sends a request to the node of its key; ``wait``, ``attempt``, ``hold`` and ``release`` are
the life of a lock; ``engine`` owns them all. Both interfaces of the package (threads and asyncio) use ``Engine`` only.
"""
