"""``@locks.skip``: a call that does nothing while somebody else holds the lease."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dblock import LockLost, Locks, NotAcquired
from tests.contract.conftest import NewLocks
from tests.support import LONG


def test_a_call_is_skipped_while_another_holds_the_lease(
    locks: Locks, new_locks: NewLocks, caplog: pytest.LogCaptureFixture
) -> None:
    ran = list[int]()

    @locks.skip("cleanup", ttl=LONG)
    def cleanup(day: int) -> int:
        """Clean up."""
        assert locks.show("cleanup").held
        ran.append(day)
        return day

    assert (cleanup.__name__, cleanup.__doc__) == ("cleanup", "Clean up.")
    assert cleanup(1) == 1
    assert not locks.show("cleanup").held
    with (
        new_locks().lease("cleanup", ttl=LONG, label="another host"),
        caplog.at_level(logging.INFO, "dblock"),
    ):
        assert cleanup(2) is None
    (said,) = [one.getMessage() for one in caplog.records if "was skipped" in one.message]
    assert " was skipped: 'cleanup' was not acquired" in said
    assert "another host" in said
    assert cleanup(3) == 3
    assert ran == [1, 3]


def test_what_the_body_raises_is_raised(locks: Locks) -> None:
    """Also a refusal of another lock: the call was not skipped."""

    @locks.skip("cleanup", ttl=LONG)
    def cleanup() -> None:
        raise NotAcquired("'shelf' was not acquired", name="shelf")

    with pytest.raises(NotAcquired, match="shelf"):
        cleanup()
    assert not locks.show("cleanup").held


def test_a_loss_is_raised_at_the_end(locks: Locks, new_locks: NewLocks) -> None:
    other = new_locks()

    @locks.skip("cleanup", ttl=LONG)
    def cleanup() -> None:
        assert other.release("cleanup", force=True)

    with pytest.raises(LockLost):
        cleanup()


def test_the_options_are_those_of_a_lease(locks: Locks) -> None:
    @locks.skip("cleanup", ttl=LONG, label="the janitor", reentrant=True)
    def cleanup(again: bool = True) -> str | None:
        if again:
            return cleanup(again=False)
        return locks.show("cleanup").owner

    assert (cleanup() or "").endswith("the janitor")
    for wrong in ({"wait": 5}, {"limit": 3}):
        with pytest.raises(TypeError):
            locks.skip("cleanup", **wrong)  # type: ignore[arg-type]
    for ttl in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="TTL"):
            locks.skip("cleanup", ttl=ttl)


def test_functions_that_return_before_their_body_runs_are_refused(tmp_path: Path) -> None:
    def numbers() -> object:
        yield 1

    with (
        Locks(f"sqlite:///{tmp_path}/db") as plain,
        pytest.raises(TypeError, match="before its body runs"),
    ):
        plain.skip("cleanup")(numbers)
