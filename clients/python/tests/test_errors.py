"""Errors: their classes, their texts, and that nothing secret is in them."""

from __future__ import annotations

import pickle

import pytest
from redis import exceptions as redis_errors

from redis_lock_client import errors


@pytest.mark.parametrize(
    "line,kind,of_redis",
    [
        ("WRONGTYPE a text", errors.WrongType, redis_errors.LockError),
        ("LOCKTYPE a text", errors.WrongType, redis_errors.ResponseError),
        ("DEADLOCK a text", errors.Deadlock, redis_errors.ResponseError),
        ("NOPERM a text", errors.NoPermission, redis_errors.NoPermissionError),
        ("NOAUTH a text", errors.NotAuthenticated, redis_errors.AuthenticationError),
        ("LOCKBROKEN a text", errors.LockBroken, redis_errors.ResponseError),
        ("ERR a text", errors.Refused, redis_errors.ResponseError),
    ],
)
def test_a_refusal_has_its_class(line: str, kind: type[errors.Refused], of_redis: type[Exception]) -> None:
    error = errors.of_reply("host:1", line)
    assert isinstance(error, (kind, of_redis))
    assert isinstance(error, kind)
    assert (error.code, error.text, str(error)) == (line.split()[0], "a text", f"host:1: {line}")
    assert line in repr(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (kind, str(error))


def test_every_error_can_be_made_and_copied() -> None:
    made = [
        errors.NotLoaded("host:1", "LOCK.ACQUIRE"),
        errors.ConnectionFailed("host:1", "what"),
        errors.NoAnswer("host:1"),
        errors.Unheard("host:1", "what"),
        errors.Untrusted("host:1"),
        errors.ConfigError("what"),
        errors.Closed("what"),
        errors.NotAcquired("what", "name"),
        errors.NotOwned("what", b"name"),
    ]
    for error in made:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))
    assert isinstance(made[2], redis_errors.TimeoutError)
    assert isinstance(made[2], redis_errors.ConnectionError)
    assert made[8].lock_name == b"name"


def test_an_unknown_command_says_how_to_load_the_module() -> None:
    error = errors.of_reply(
        "host:1", "ERR unknown command 'LOCK.ACQUIRE', with args beginning with: 'k' 'secret-owner'"
    )
    assert "host:1 does not know LOCK.ACQUIRE: load the module there" in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize("what", ["111.", "Connect call failed ('127.0.0.1', 1)."])
def test_a_refused_connection_is_called_so(what: str) -> None:
    """The words of redis-py for asyncio have the number alone."""
    error = redis_errors.ConnectionError(f"Error 111 connecting to host:1. {what}")
    error.__context__ = ConnectionRefusedError(111, "Connect call failed")
    assert str(errors.of_redis("host:1", error)).endswith("(Connection refused)")


def test_a_refusal_does_not_name_the_user() -> None:
    text = "has no permissions to run the 'lock.acquire' command"
    for line in (f"NOPERM User a-user {text}", f"NOPERM this user {text}"):
        assert str(errors.of_reply("host:1", line)) == f"host:1: NOPERM this user {text}"
