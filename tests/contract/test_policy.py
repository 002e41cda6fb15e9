"""When to try, wait and give up: the protocols driven by hand, with a clock of the test's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tenacity import (
    stop_after_attempt,
    stop_after_delay,
    stop_never,
    wait_exponential,
    wait_fixed,
    wait_none,
)

from dblock import Attempt, DBLockError, OutcomeUnknown, RetryPolicy
from dblock.dialects import DIALECTS, Dialect
from dblock.dialects.tickets import TICKET
from dblock.protocol import commands
from dblock.protocol.acquire import acquire
from dblock.protocol.commands import Look, LookQueued
from dblock.protocol.exchange import Exchange
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.lease import Held, LeaseRequest, Refused
from dblock.protocol.row_lock import Locked, lock
from dblock.protocol.schema_version import SCHEMA_VERSION
from dblock.protocol.steps import (
    Execute,
    ExecuteInTransaction,
    Procedure,
    Reply,
    Sleep,
    Step,
    Turn,
    WaitNotification,
    WaitTurn,
)
from dblock.protocol.term import Term
from dblock.protocol.waiters import Caller, Waiter
from dblock.protocol.waiting import WaitOptions
from tests.protocol.rows import Rows, reading
from tests.protocol.stage import TABLES, located
from tests.servers import FAMILY
from tests.support import examples

START = 1000.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "f" * 32
HELD = ("report", 7, "e" * 32, "another", NOW, NOW, 25.0, None)
# A statement's latency and what came of it; None is the refusal itself.
FAULTS = [None, None, Fault.BUSY, Fault.CANCELED, Fault.DEADLOCK, Fault.UNREACHABLE]
LEAVING = ("leave", "pass_on")
MOMENTS = st.floats(0.0, 0.5)

kinds = pytest.mark.parametrize("kind", sorted(DIALECTS))


def dialect_of(kind: str) -> Dialect:
    return located(kind)


def unseen(dialect: Dialect) -> Waiter:
    """One who waits without ever being written down."""
    return Waiter(
        dialect,
        "report",
        "lease",
        START,
        Caller(
            owner=lambda: "somebody",
            holds=dict,
            new_id=lambda: TOKEN,
            seen={},
        ),
        next=math.inf,
    )


def new_claim() -> LeaseRequest:
    return LeaseRequest("report", TOKEN, "somebody", 30.0)


class Clock:
    """Performs a protocol's steps on a database that has the name held by another."""

    def __init__(self, dialect: Dialect, steps: Iterator[tuple[float, Fault | None]]) -> None:
        self.now = START
        self.sleeps: list[tuple[float, float]] = []  # (from, how long)
        self.deadline = self.until = math.inf  # to when it may sleep: in all, and just now
        self._asked = ""
        self._dialect = dialect
        self._steps = steps

    def drive(self, protocol: Procedure[Any]) -> Any:
        reply: Any = None
        failure: StatementError | None = None
        while True:
            try:
                step = protocol.throw(failure) if failure else protocol.send(reply)
            except StopIteration as stop:
                return stop.value
            failure = None
            try:
                reply = self.perform(step)
            except StatementError as caught:
                failure = caught
                failure.now = self.now

    def perform(self, step: Step) -> Reply[Any]:
        sent = self.now
        if isinstance(step, WaitTurn):
            ticket = (TICKET * "0", self._dialect.traits.can_notify) if step.look else (None, False)
            return Reply(Turn(True, *ticket), sent, self.now)
        if isinstance(step, Sleep | WaitNotification):  # nobody calls
            assert step.seconds >= 0
            late = self.now + step.seconds - max(self.until, self.now)
            assert late <= 1e-6, f"{step} of {self._asked} at {self.now - START}: {late} too long"
            self.sleeps.append((self.now, step.seconds))
            self.now += step.seconds
            return Reply(None, sent, self.now)
        if isinstance(step, Execute):
            # To leave the queue is tried so long, from when that is first asked; and so long again
            # to give back, for who is not in the queue any more may have been passed the name.
            if step.command.word not in LEAVING:
                self.until = self.deadline
            elif step.command.word != self._asked:
                self.until = sent + self._dialect.timing.leaving
            self._asked = step.command.word
        latency, fault = next(self._steps, (0.001, None))
        self.now += latency
        if isinstance(step, Execute | ExecuteInTransaction):
            if fault is not None:
                raise StatementError(fault, "as the test wants it")
            rows = self.rows(self._dialect.query(step.command).sql)
            return Rows(rows, 0, sent, self.now).read(self._dialect, step)
        return Reply(None, sent, self.now)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        place = (0, False, self.now) if self._dialect.traits.can_notify else (0, False)
        if sql == self._dialect.query(Look(("report",))).sql:
            return [HELD]
        if sql == self._dialect.query(LookQueued("report", "", "")).sql:
            return [(*HELD, *place)]
        if sql == self._dialect.query(commands.Grant("report", "", "", 1.0)).sql:
            return []
        if sql == self._dialect.query(commands.Join("report", "", "", 1.0, "")).sql:
            grant = (7, 25.0, "e" * 32) if self._dialect.name in FAMILY else (None, None, None)
            return [(*grant, *HELD, *place)]
        if sql == self._dialect.query(commands.LookAround(borrowed=True)).sql:
            here = TABLES[self._dialect.name]
            told = [getattr(here, what) for what in self._dialect.found]
            return [(*told, SCHEMA_VERSION, SCHEMA_VERSION, here.identity)]
        if self._dialect.name == "postgresql":
            return [(True, None, "0", True, True)]  # of locking a row: another has it
        return []


def lease(dialect: Dialect, policy: RetryPolicy, wait: float | None) -> Any:
    return leased(dialect, policy, wait, fair=False)


def queued(dialect: Dialect, policy: RetryPolicy, wait: float | None) -> Any:
    return leased(dialect, policy, wait, fair=True)


def leased(dialect: Dialect, policy: RetryPolicy, wait: float | None, *, fair: bool) -> Any:
    return acquire(
        Exchange(dialect, "report", START, wait, 10.0, START),
        new_claim(),
        WaitOptions(policy, "report", lambda: unseen(dialect), fair),
    )


def own_row(
    dialect: Dialect, policy: RetryPolicy, wait: float | None, *, borrowed: bool = False
) -> Any:
    return lock(
        Exchange(dialect, "report", START, wait, 10.0, START),
        policy,
        borrowed=borrowed,
        waiter=lambda: unseen(dialect),
    )


def users_row(dialect: Dialect, policy: RetryPolicy, wait: float | None) -> Any:
    return own_row(dialect, policy, wait, borrowed=True)


# The last try to leave is answered after its time, and to give back is only begun then.
LEFT_LATE = [
    *[(0.0, None)] * 4,
    *[(0.5, Fault.BUSY)] * 2,
    (0.5, None),
    (0.0, Fault.BUSY),
    (0.5, Fault.BUSY),
]

ways = pytest.mark.parametrize("way", [lease, queued, own_row, users_row])
Way = Callable[[Dialect, RetryPolicy, float | None], Any]


@kinds
@ways
@example(wait=1.0, nap=1.0, exponential=False, steps=LEFT_LATE)
@given(
    wait=st.floats(0.0, 20.0),
    nap=st.floats(0.0, 30.0),
    exponential=st.booleans(),
    steps=st.lists(st.tuples(MOMENTS, st.sampled_from(FAULTS)), max_size=60),
)
@settings(max_examples=examples(60))
def test_no_sleep_goes_past_the_deadline(
    kind: str,
    way: Way,
    wait: float,
    nap: float,
    exponential: bool,
    steps: list[tuple[float, Fault | None]],
) -> None:
    dialect = dialect_of(kind)
    napping = wait_exponential(multiplier=nap) if exponential else wait_fixed(max(nap, 0.01))
    clock = Clock(dialect, iter(steps))
    clock.deadline = clock.until = START + wait
    policy = RetryPolicy(wait=napping, stop=stop_after_attempt(200))
    try:
        outcome = clock.drive(way(dialect, policy, wait))
    except DBLockError:
        pass  # unreachable, or busy, until the deadline
    else:
        assert isinstance(outcome, Refused)


@kinds
def test_the_last_try_is_at_the_deadline(kind: str) -> None:
    dialect = dialect_of(kind)
    naps: list[Attempt] = []
    policy = RetryPolicy(wait=wait_fixed(1), before_sleep=naps.append)
    clock = Clock(dialect, iter([(0.0, None)] * 100))
    outcome = clock.drive(lease(dialect, policy, 2.5))
    assert isinstance(outcome, Refused)
    assert outcome.state is not None
    assert outcome.state.owner == "another"
    assert [nap.sleep for nap in naps] == [1.0, 1.0, 0.5]
    assert [nap.elapsed for nap in naps] == [0.0, 1.0, 2.0]
    assert clock.now == START + 2.5


@kinds
@ways
def test_the_textbook_policy(kind: str, way: Way) -> None:
    """Four tries, one second apart."""
    dialect = dialect_of(kind)
    clock = Clock(dialect, iter([(0.0, None)] * 100))
    assert isinstance(clock.drive(way(dialect, RetryPolicy.textbook(), None)), Refused)
    if way is not users_row or not dialect.traits.refusal_holds:
        assert [seconds for _, seconds in clock.sleeps if seconds] == [1.0, 1.0, 1.0]


@kinds
def test_a_sleep_ends_with_the_lease_in_the_way(kind: str) -> None:
    dialect = dialect_of(kind)
    clock = Clock(dialect, iter([(0.0, None)] * 100))
    policy = RetryPolicy(wait=wait_fixed(100), stop=stop_after_attempt(2))
    clock.drive(lease(dialect, policy, None))
    assert clock.sleeps == [(START, 25.0)]


@kinds
def test_without_waiting_there_is_one_try_and_no_sleep(kind: str) -> None:
    for way in (lease, own_row, users_row):
        dialect = dialect_of(kind)
        naps: list[Attempt] = []
        clock = Clock(dialect, iter([(0.0, None)] * 100))
        policy = RetryPolicy(before_sleep=naps.append)
        assert isinstance(clock.drive(way(dialect, policy, 0.0)), Refused)
        assert naps == []
        assert sum(seconds for _, seconds in clock.sleeps) == 0


def test_a_free_name_is_one_step() -> None:
    dialect = dialect_of("postgresql")
    protocol = reading(dialect, lease(dialect, RetryPolicy(), 0.0))
    assert isinstance(next(protocol), Execute)
    with pytest.raises(StopIteration) as stop:
        protocol.send(Rows([(8, 30.0, None)], 1, START, START + 0.01))
    assert stop.value.value == Held(8, Term(START, 30.0))


def test_a_grant_that_came_too_late_is_given_back() -> None:
    """Nobody starts on a lease whose time was spent waiting for the reply."""
    dialect = dialect_of("postgresql")
    protocol = reading(dialect, lease(dialect, RetryPolicy(), 0.0))
    next(protocol)
    step = protocol.send(Rows([(8, 1.0, None)], 1, START, START + 28.0))
    assert isinstance(step, Execute)
    assert step.command == commands.PassOn("report", TOKEN)


def test_a_later_refusal_says_nothing_of_the_try_before() -> None:
    dialect = dialect_of("postgresql")
    protocol = reading(dialect, lease(dialect, RetryPolicy(), 0.0))
    next(protocol)
    step = protocol.throw(StatementError(Fault.DISCONNECTED, "cut"))
    assert isinstance(step, Execute)
    assert step.command == Look(("report",))
    protocol.send(Rows([], 0, START, START + 0.1))
    with pytest.raises(OutcomeUnknown, match="disk full"):
        protocol.throw(StatementError(Fault.REFUSED, "disk full"))


def test_a_grant_after_a_lost_reply_may_be_the_earlier_one() -> None:
    """Which tells by what remains of it how old it is."""
    dialect = dialect_of("mariadb")
    protocol = reading(dialect, lease(dialect, RetryPolicy(), 1.0))
    step = next(protocol)
    while isinstance(step, WaitTurn):
        step = protocol.send(Rows([(None, False)], 0, START, START))
    step = protocol.throw(StatementError(Fault.DISCONNECTED, "cut"))
    assert isinstance(step, Execute)
    assert step.command == Look(("report",))
    protocol.send(Rows([], 0, START + 5, START + 5))
    with pytest.raises(StopIteration) as stop:
        protocol.send(Rows([(8, 28.0, TOKEN)], 1, START + 6, START + 6))
    assert stop.value.value == Held(8, Term(START + 4, 30.0))


def test_a_free_row_is_locked() -> None:
    dialect = dialect_of("postgresql")
    protocol = reading(dialect, own_row(dialect, RetryPolicy(), 1.0))
    assert isinstance(next(protocol), ExecuteInTransaction)
    with pytest.raises(StopIteration) as stop:
        protocol.send(Rows([(True, 8, True)], 1, START, START + 0.01))
    assert isinstance(stop.value.value, Locked)


# The policy by itself


def test_strategies_are_tenacitys() -> None:
    policy = RetryPolicy(wait=wait_fixed(2), stop=stop_after_attempt(3) | stop_after_delay(10))
    assert policy.sleep_after("x", 1, 0.0, None) == 2.0
    assert policy.sleep_after("x", 3, 0.0, None) is None
    assert policy.sleep_after("x", 1, 10.0, None) is None
    growing = RetryPolicy(wait=wait_exponential(multiplier=1, max=5))
    assert [growing.sleep_after("x", n, 0.0, None) for n in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 5.0]
    own = RetryPolicy(wait=lambda state: state.attempt_number * 0.5)
    assert own.sleep_after("x", 3, 0.0, None) == 1.5


def test_the_deadline_cuts_a_sleep() -> None:
    policy = RetryPolicy(wait=wait_fixed(2))
    assert policy.sleep_after("x", 1, 0.0, 1.5) == 1.5
    assert policy.sleep_after("x", 1, 0.0, 0.0) is None
    assert policy.sleep_after("x", 1, 5.0, -1.0) is None


def test_the_hook() -> None:
    told: list[Attempt] = []
    policy = RetryPolicy(wait=wait_fixed(2), before_sleep=told.append)
    policy.sleep_after("report", 4, 7.0, 1.0)
    assert told == [Attempt("report", 4, 7.0, 1.0)]
    policy.sleep_after("report", 5, 8.0, 0.0)
    assert len(told) == 1  # no sleep, no hook


@given(number=st.integers(1, 10_000), elapsed=st.floats(0, 1e6), left=st.floats(0.001, 1e6))
def test_full_jitter_by_default(number: int, elapsed: float, left: float) -> None:
    sleep = RetryPolicy().sleep_after("x", number, elapsed, left)
    assert sleep is not None
    assert 0 <= sleep <= min(1.0, left)


def test_it_differs_from_waiter_to_waiter() -> None:
    sleeps = {RetryPolicy().sleep_after("x", 20, 0.0, None) for _ in range(50)}
    assert len(sleeps) > 40
    ordered = sorted(sleep for sleep in sleeps if sleep is not None)
    assert ordered[0] < 0.25
    assert ordered[-1] > 0.75


def test_impatient_policies_are_allowed() -> None:
    policy = RetryPolicy(wait=wait_none(), stop=stop_never)
    assert policy.sleep_after("x", 1_000_000, 1e9, None) == 0.0


# The term


@given(start=st.floats(0, 1e6), ttl=st.floats(0.1, 1e6), now=st.floats(0, 3e6))
def test_the_holders_deadline_is_the_earlier_one(start: float, ttl: float, now: float) -> None:
    term = Term(start, ttl)
    assert start < term.deadline < start + ttl
    assert 0 < term.margin <= min(5.0, ttl / 10) + 1e-9
    assert term.over(now) == (term.remaining(now) == 0)
    assert term.remaining(now) <= max(0.0, start + ttl - now)


def test_a_term() -> None:
    assert (Term(100.0, 30.0).margin, Term(100.0, 30.0).deadline) == (3.0, 127.0)
    assert Term(100.0, 3600.0).margin == 5.0
    assert not Term(100.0, 30.0).over(126.9)
    assert Term(100.0, 30.0).over(127.0)
    assert Term(100.0, 30.0).remaining(120.0) == 7.0
