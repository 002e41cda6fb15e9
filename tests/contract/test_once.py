"""Calls that are made once: one effect for a key, and its result for all who come later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import AbstractContextManager
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from dblock import (
    Conflict,
    DeadlockDetected,
    InProgress,
    KeyReused,
    Locks,
    Unavailable,
    Unsupported,
)
from tests.conftest import Database
from tests.support import (
    BORROWED,
    MOMENT,
    SECONDS,
    Facts,
    Threads,
    borrowed,
    new_session,
    settings,
    told_to_retry,
)

AGO = "2000-01-01 00:00:00"


def call(locks: Locks, on: Any, key: str = "order-42", **options: Any) -> Any:
    """Make a call that adds one to the number of facts; return its result, and if it is old."""
    options.setdefault("wait", SECONDS)
    with locks.once(on, key, **options) as made:
        if not made.replayed:
            add_one(on)
            made.result = {"id": 7, "name": "Ünïcode \\ ' \" %s \0"}
        return made.result, made.replayed


def finish(locks: Locks, on: Any, result: Any, last: Callable[[], Any]) -> None:
    """Make a call that does something after its result is set."""
    with locks.once(on, "key") as made:
        made.result = result
        last()


def told_in_progress(on: Any, db: Database) -> AbstractContextManager[pytest.ExceptionInfo[Any]]:
    """A call that has not ended is told; and so is that the server undid the transaction then."""
    if db.kind == "mysql" and on.execute(text("SELECT @@innodb_rollback_on_timeout")).scalar():
        return pytest.raises(DeadlockDetected, match="undoing this transaction")
    return pytest.raises(InProgress, match="has not ended")


def add_one(on: Any) -> None:
    on.execute(text("UPDATE facts SET n = n + 1 WHERE id = 0"))


def keys(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM dblock_once")).scalar_one())


def expire(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE dblock_once SET expires_at = '{AGO}'"))


RESULT = {"id": 7, "name": "Ünïcode \\ ' \" %s \0"}


@pytest.mark.parametrize("how", BORROWED)
def test_once(locks: Locks, engine: Engine, facts: Facts, how: str) -> None:
    for replayed in (False, True, True):
        with borrowed(engine, how) as on:
            assert call(locks, on) == (RESULT, replayed)
            on.commit()
        assert facts.n == 1
    with borrowed(engine, how) as on:
        assert call(locks, on, "order-43") == (RESULT, False)
        on.commit()
    assert facts.n == 2


def test_the_same_transaction_again(locks: Locks, engine: Engine, facts: Facts) -> None:
    with new_session(engine) as session:
        assert call(locks, session) == (RESULT, False)
        assert call(locks, session) == (RESULT, True)
        session.commit()
    assert facts.n == 1


@pytest.mark.parametrize("result", [None, 0, "", [1, [2]], {"a": None}, "x" * 100_000])
def test_results(locks: Locks, engine: Engine, result: Any) -> None:
    for replayed in (False, True):
        with new_session(engine) as session:
            with locks.once(session, "key") as made:
                assert made.replayed is replayed
                if not replayed:
                    assert made.result is None
                    made.result = result
                assert made.result == result
            session.commit()


def test_keys_are_exact(locks: Locks, engine: Engine, facts: Facts) -> None:
    names = ["a", "A", "á", "a ", " a", "a%s", "a'", 'a"', "a\\", "😀", "x" * 255]
    with new_session(engine) as session:
        for name in names:
            assert call(locks, session, name)[1] is False
        session.commit()
        for name in names:
            assert call(locks, session, name)[1] is True
        session.commit()
    assert facts.n == len(names)


def test_a_rollback_leaves_nothing(locks: Locks, engine: Engine, facts: Facts) -> None:
    with new_session(engine) as session:
        assert call(locks, session) == (RESULT, False)
        session.rollback()
        assert (facts.n, keys(engine)) == (0, 0)
        assert call(locks, session) == (RESULT, False)
        session.commit()
    assert facts.n == 1


def test_an_error_leaves_no_key(locks: Locks, engine: Engine, facts: Facts) -> None:
    """Not even where the transaction is committed all the same."""
    with new_session(engine) as session:
        with pytest.raises(ZeroDivisionError), locks.once(session, "order-42") as made:
            made.result = 1 / 0
        session.commit()
        assert keys(engine) == 0
        assert call(locks, session) == (RESULT, False)
        session.commit()
    assert facts.n == 1


def test_a_result_that_cannot_be_recorded(locks: Locks, engine: Engine) -> None:
    with new_session(engine) as session:
        for bad in (object(), {"a": b"b"}, {1j}):
            with (
                pytest.raises(TypeError, match="a result is something that JSON can express"),
                locks.once(session, "key") as made,
            ):
                made.result = bad
        for worse in (float("nan"), "x" * 2**20):
            with pytest.raises(ValueError, match="a result is"), locks.once(session, "key") as made:
                made.result = worse
        growing: list[object] = []
        with pytest.raises(TypeError, match="a result is"):
            finish(locks, session, growing, lambda: growing.append(object()))
        session.commit()
    assert keys(engine) == 0


@pytest.mark.parametrize(
    "result",
    [{1: "a"}, {1: "a", "1": "b"}, {None: 0}, {True: 0}, (1, 2), {"lines": [(1, "pot")]}],
    ids=repr,
)
def test_a_result_that_a_replay_would_not_get(locks: Locks, engine: Engine, result: Any) -> None:
    with borrowed(engine, "session") as session:
        changing: dict[str, Any] = {}
        with pytest.raises(TypeError, match="the same in the first call and in a replay"):
            finish(locks, session, changing, lambda: changing.update(n=result))
        with locks.once(session, "key") as made:
            with pytest.raises(TypeError, match="the same in the first call and in a replay"):
                made.result = result
            assert made.result is None
        session.rollback()


class Colour(StrEnum):
    RED = "red"


def test_a_result_that_a_replay_gets(locks: Locks, engine: Engine) -> None:
    """What JSON reads back is equal, whatever kind of text or number it was."""
    result = {"colour": Colour.RED, "size": OrderedDict(w=1.5, h=-0.0), "at": 2**70}
    for _ in range(2):
        with borrowed(engine, "session") as session:
            with locks.once(session, "key") as made:
                if not made.replayed:
                    made.result = result
                assert made.result == result
            session.commit()


def test_a_result_that_is_set_outside_the_block(locks: Locks, engine: Engine) -> None:
    """Nobody would record it."""
    with new_session(engine) as session:
        made = locks.once(session, "key")
        with pytest.raises(ValueError, match="set it inside"):
            made.result = "early"
        with made:
            made.result = "in time"
        with pytest.raises(ValueError, match="set it inside"):
            made.result = "late"
        session.commit()
        with locks.once(session, "key") as again:
            assert again.result == "in time"


def test_bad_arguments(locks: Locks, engine: Engine) -> None:
    with new_session(engine) as session:
        for key, error in ((b"key", TypeError), ("", ValueError), ("x" * 256, ValueError)):
            with pytest.raises(error, match="an idempotency key"):
                locks.once(session, key)  # type: ignore[arg-type]
        for keep, wrong in ((59, ValueError), ("24h", TypeError), (float("inf"), OverflowError)):
            with pytest.raises(wrong, match="keep is"):
                locks.once(session, "key", keep=keep)  # type: ignore[arg-type]
        for bad, wrong in ((-1, ValueError), (float("inf"), ValueError), (1e300, OverflowError)):
            with pytest.raises(wrong, match="a wait "):
                locks.once(session, "key", wait=bad)
        with pytest.raises(TypeError, match="a fingerprint is something that JSON can express"):
            locks.once(session, "key", fingerprint=object())
        with pytest.raises(TypeError, match="an SQLAlchemy "), locks.once(7, "key"):  # type: ignore[arg-type]
            pass
        locks.once(session, "key", keep=timedelta(days=1), wait=timedelta(seconds=1))


def test_fingerprints(locks: Locks, engine: Engine, facts: Facts) -> None:
    same: list[tuple[Any, Any]] = [
        (b"a", b"a"),
        ("ä", "ä".encode()),
        ({"a": 1, "b": [2, None]}, {"b": [2, None], "a": 1}),
        (None, "anything"),
        ("anything", None),
    ]
    with new_session(engine) as session:
        for number, (first, second) in enumerate(same):
            key = f"same {number}"
            assert call(locks, session, key, fingerprint=first)[1] is False
            session.commit()
            assert call(locks, session, key, fingerprint=second)[1] is True
            session.commit()
        other: list[tuple[Any, Any]] = [
            (b"a", b"b"),
            ("a", "A"),
            ({"a": 1}, {"a": 2}),
            ("1", 1),
            ('{"a": 1}', {"a": 1}),
        ]
        for number, (first, second) in enumerate(other):
            key = f"other {number}"
            assert call(locks, session, key, fingerprint=first)[1] is False
            session.commit()
            with pytest.raises(KeyReused, match="another fingerprint") as caught:
                call(locks, session, key, fingerprint=second)
            assert caught.value.name == key
            assert call(locks, session, key, fingerprint=first)[1] is True  # the session lives on
            session.commit()
    assert facts.n == len(same) + len(other)


def test_a_second_call_waits_for_the_result(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, threads: Threads
) -> None:
    def second() -> Any:
        with new_session(engine) as session:
            told = call(others, session)
            session.commit()
            return told

    with new_session(engine) as session:
        assert call(locks, session) == (RESULT, False)
        waiting = threads.start(second)
        with pytest.raises(TimeoutError):
            waiting.result(MOMENT)
        session.commit()
    try:
        assert waiting.result(SECONDS) == (RESULT, True)
    except Conflict as error:  # by its isolation level
        told_to_retry(error)
        threads._futures.clear()
        assert second() == (RESULT, True)
    assert facts.n == 1


def test_a_second_call_is_the_first_after_a_rollback(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, threads: Threads
) -> None:
    def second() -> Any:
        with new_session(engine) as session:
            told = call(others, session, wait=None)
            session.commit()
            return told

    with new_session(engine) as session:
        assert call(locks, session) == (RESULT, False)
        waiting = threads.start(second)
        with pytest.raises(TimeoutError):
            waiting.result(MOMENT)
        session.rollback()
    assert waiting.result(SECONDS) == (RESULT, False)
    assert facts.n == 1


@pytest.mark.parametrize("within", [0, 0.2])
def test_in_progress(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, db: Database, within: float
) -> None:
    """It is told, and the transaction that was told goes on, with its settings as they were."""
    with new_session(engine) as first, new_session(engine) as second:
        before = settings(second, db.kind)
        second.rollback()
        assert call(locks, first) == (RESULT, False)
        with told_in_progress(second, db) as caught:
            call(others, second, wait=within)
        assert caught.value.name == "order-42"
        assert settings(second, db.kind) == before
        if not locks._database.dialect.traits.one_writer:
            with others.once(second, "order-43", wait=within) as other:
                assert not other.replayed
            assert settings(second, db.kind) == before
        second.rollback()
        first.commit()
        assert call(others, second, wait=within) == (RESULT, True)
        assert settings(second, db.kind) == before
        second.commit()
    assert facts.n == 1


def test_many_at_once(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, threads: Threads
) -> None:
    """Whoever is told to run it again does so; one effect, and the same result for all."""

    def one(locks: Locks, fail: bool) -> Any:
        while True:
            try:
                with new_session(engine) as session:
                    told = call(locks, session)
                    if fail:
                        fail = False
                        session.rollback()
                        continue
                    session.commit()
                    return told
            except (Conflict, DeadlockDetected, Unavailable):
                continue

    made = [threads.start(one, (locks, others)[n % 2], n % 3 == 0) for n in range(6)]
    told = [future.result(SECONDS) for future in made]
    assert [result for result, _ in told] == [RESULT] * 6
    assert sorted(replayed for _, replayed in told) == [False] + [True] * 5
    assert facts.n == 1


def test_expired_keys_are_new(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, db: Database
) -> None:
    with new_session(engine) as session:
        call(locks, session, fingerprint="a")
        session.commit()
        expire(engine)
        assert call(locks, session, fingerprint="b") == (RESULT, False)
        with new_session(engine) as other, told_in_progress(other, db):
            call(others, other, wait=0)
        session.commit()
        assert call(locks, session, fingerprint="b") == (RESULT, True)
        session.commit()
    assert facts.n == 2


def test_pruning(locks: Locks, engine: Engine, facts: Facts) -> None:
    with new_session(engine) as session:
        call(locks, session, "old")
        session.commit()
        expire(engine)
        call(locks, session, "new")
        session.commit()
        assert locks.prune(timedelta(days=9)).keys == 1
        assert locks.prune(timedelta(days=9)).keys == 0
        assert call(locks, session, "new")[1] is True
        session.commit()


def test_a_key_that_is_taken_over_is_not_pruned(
    locks: Locks, engine: Engine, facts: Facts, threads: Threads
) -> None:
    with new_session(engine) as session:
        call(locks, session)
        session.commit()
        expire(engine)
        assert call(locks, session) == (RESULT, False)
        pruning = threads.start(locks.prune, timedelta(days=9))
        wait([pruning], MOMENT)  # where it waits at all
        session.commit()
        assert pruning.result(SECONDS).keys == 0
        assert call(locks, session) == (RESULT, True)
        session.commit()
    assert facts.n == 2


def test_a_transaction_that_ends_inside(locks: Locks, engine: Engine, facts: Facts) -> None:
    with new_session(engine) as session:
        with pytest.raises(Unsupported, match="ended inside its block"):
            finish(locks, session, None, session.rollback)
        assert keys(engine) == 0
        with pytest.raises(Unsupported, match="ended inside its block"):
            finish(locks, session, None, session.commit)
        session.rollback()
        with pytest.raises(InProgress, match="committed before its block ended"):
            call(locks, session, "key")
        session.rollback()
    assert facts.n == 0


def test_a_savepoint_undoes_the_call_alone(locks: Locks, engine: Engine, facts: Facts) -> None:
    with new_session(engine) as session:
        add_one(session)
        savepoint = session.begin_nested()
        assert call(locks, session) == (RESULT, False)
        savepoint.rollback() if not hasattr(session, "run") else session.run(savepoint.rollback)
        session.commit()
        assert (facts.n, keys(engine)) == (1, 0)


def test_inside_itself(locks: Locks, engine: Engine) -> None:
    with new_session(engine) as session:
        made = locks.once(session, "key")
        with made:
            with pytest.raises(InProgress, match="under way in this transaction"):
                call(locks, session, "key")
            with pytest.raises(ValueError, match="entered once"), made:
                pass
        session.commit()
        with locks.once(session, "key") as again, pytest.raises(ValueError, match="made before"):
            again.result = 1
        session.commit()


def test_a_snapshot_that_is_too_old(locks: Locks, engine: Engine, facts: Facts) -> None:
    """Run it again, or have the right result: never a second effect."""
    level = "SERIALIZABLE" if locks._database.dialect.traits.one_writer else "REPEATABLE READ"
    isolated = engine.execution_options(isolation_level=level)
    with new_session(isolated) as old, new_session(engine) as new:
        if not locks._database.dialect.traits.one_writer:
            facts.read(old)
        call(locks, new)
        new.commit()
        try:
            assert call(locks, old) == (RESULT, True)
        except (Conflict, DeadlockDetected) as error:
            told_to_retry(error)
        old.rollback()
    assert facts.n == 1


def test_autocommit_is_refused(locks: Locks, engine: Engine) -> None:
    automatic = engine.execution_options(isolation_level="AUTOCOMMIT")
    with new_session(automatic) as session:
        made = locks.once(session, "key")
        with pytest.raises(ValueError, match="autocommit"), made:
            pass
