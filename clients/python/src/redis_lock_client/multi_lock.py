"""A lock of several keys, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from ._base import BaseMultiLock
from ._options import Number
from ._terms import Text
from .lock import ThreadLock

if TYPE_CHECKING:
    from ._options import SyncClient
    from .server import Server


class MultiLock(ThreadLock, BaseMultiLock[Union["SyncClient", "Server"]]):
    """Several keys that are locked together or not at all: all are granted in one event of the server
    (``LOCK.MACQUIRE``), and a wait for them holds none. They are renewed (``LOCK.MRENEW``) and released
    (``LOCK.MRELEASE``) together. When one of them is lost the hold is lost: it is not renewed any more, and the others
    stay held until the release or the end of the lease.

    :param redis: a client of redis-py, or a :class:`Server`.
    :param names: the keys, each of them once, at most 1,024. In a cluster they have one hash tag (``{orders}:1``,
        ``{orders}:2``), because no event of a cluster has keys of two slots.
    :param timeout: the lease in seconds, not renewed. None or 0: renewed until the release.
    :param blocking: whether :meth:`acquire` waits.
    :param blocking_timeout: how long it waits, in seconds; None for no limit.
    :param thread_local: whether each thread sees only its own hold.
    :param raise_on_release_error: whether leaving a ``with`` statement raises when the lock was lost.
    :param lease: the lease in seconds of a lock that is renewed (30 by default; 2 ms to a hundred years). Not together
        with ``timeout``.
    :param margin: how long before the end of the lease a loss is reported, in seconds: 0 to half of the lease, a sixth
        of it by default.
    :param owner: the owner of all keys, see :class:`Lock`. It holds none of them in another mode at the same time.
    :param mode: the mode of all keys: ``Mode.READ`` or ``Mode.WRITE`` for read-write locks.
    :param renew: whether the lease is renewed; None: if there is no timeout.
    :param on_lost: called with the :class:`LostReason` in a thread of its own when a key is lost.
    :raises ConfigError: when an argument is out of its bounds, no key or one key twice is named, or the keys are in
        several slots of a cluster. Nothing is sent.
    """

    def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Text] = None,
    ) -> bool:
        """Acquires all keys; False when another owner holds one of them until the end of the wait. Waits, fails and
        raises as :meth:`Lock.acquire` does.

        :param blocking: whether it waits; None: as the constructor says.
        :param blocking_timeout: how long it waits, in seconds; None: as the constructor says.
        :param token: the owner of this acquisition.
        """
        return self._acquire(blocking, blocking_timeout, token)
