"""Names are exact: any text, told apart by every character, on every database."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from dblock import Locks
from tests.support import LONG, borrowed, examples

ALIKE = [
    "a",
    "A",
    "á",
    "a ",
    " a",
    "a  ",
    "a\u0301",
    "a\t",
    "a\n",
    "\uff41",
    "ª",
    "à",
    "aa",
    "a\u200b",
]
AWKWARD = [
    "'",
    '"',
    "`",
    "''; --",
    "%",
    "%%",
    "%s",
    "%(name)s",
    ":x",
    ":name",
    "?",
    "\\",
    "\\'",
    "a\nb",
    "\r\n",
    "\x01\x7f",
    "{name}",
    "$1",
    "_",
    "NULL",
    "0",
    "\ufeff",
    "\uffff",
    "\U0010ffff",
    "日本語",
    "x" * 255,
    "é" * 255,
    "\N{PILE OF POO}" * 255,
]


def test_names_that_look_alike_are_different_locks(locks: Locks) -> None:
    held = [locks.lease(name, ttl=LONG, wait=0) for name in ALIKE]
    for lease in held:
        assert lease.acquire(), lease.name
        assert lease.fence == 1
    assert [state.name for state in locks.list()] == sorted(ALIKE)
    for lease in held:
        lease.release()
    assert locks.list() == []


def test_as_row_locks_too(locks: Locks, engine: Engine) -> None:
    """A lease on one of them is in the way of no row lock on another."""
    with borrowed(engine, "connection") as on:
        for leased, locked in itertools.pairwise(ALIKE):
            with locks.lease(leased, ttl=LONG):
                assert not locks.row(leased, wait=0, on=on).acquire()
                assert locks.row(locked, wait=0, on=on).acquire()
                on.commit()


def test_awkward_names(locks: Locks, others: Locks, engine: Engine) -> None:
    for name in AWKWARD:
        with locks.lease(name, ttl=LONG) as lease:
            lease.renew()
            assert locks.show(name).name == name
            assert locks.show(name).held
            assert [state.name for state in locks.list()] == [name]
            assert not others.lease(name).acquire(blocking=False)
            with borrowed(engine, "connection") as on, lease.guard(on):
                on.rollback()
        with others.row(name, wait=0):
            pass
        with borrowed(engine, "connection") as on:
            assert others.row(name, wait=0, on=on).acquire()
            on.rollback()
        assert others.release(name, force=True) is False


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(names=st.sets(NAMES.filter(lambda name: len(name) <= 255), min_size=1, max_size=4))
@settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_text(locks: Locks, names: set[str]) -> None:
    held = [locks.lease(name, ttl=LONG, wait=0) for name in names]
    try:
        for lease in held:
            assert lease.acquire()
            assert locks.show(lease.name).name == lease.name
        assert [state.name for state in locks.list()] == sorted(names)
    finally:
        for lease in held:
            if lease.held:
                lease.release()


def test_labels_are_any_text(locks: Locks) -> None:
    with locks.lease("report", ttl=LONG, label="nächtlich '%s' \N{PILE OF POO}" + "x" * 300):
        owner = locks.show("report").owner or ""
    assert "nächtlich '%s' \N{PILE OF POO}xxx" in owner
    assert len(owner) == 255
