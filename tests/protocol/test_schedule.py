"""When a held lease is due. No clock, no thread, no database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dblock.arguments import TTL_MAX, TTL_MIN
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.lease import Held
from dblock.protocol.renew import RenewalFailed
from dblock.protocol.schedule import NEVER, Danger, Plan, RenewalSchedule
from dblock.protocol.term import FIRST_TERM, Term

AWAY = RenewalFailed(StatementError(Fault.UNREACHABLE, "connection refused"))
BUSY = RenewalFailed(StatementError(Fault.BUSY, "its row is in use"))

starts = st.floats(0, 1e6)
ttls = st.floats(TTL_MIN, TTL_MAX)
randoms = st.floats(0, 1)
CLOSE = 1e-6


def approx(value: float) -> object:
    return pytest.approx(value, abs=CLOSE, rel=1e-9)


@given(starts, ttls, randoms)
def test_the_order_of_a_term(start: float, ttl: float, random: float) -> None:
    term = Term(start, ttl)
    schedule = RenewalSchedule(Plan(ttl), term, random)
    assert start < schedule.gather(term) < schedule.due < schedule.danger < term.deadline
    assert schedule.due == approx(start + ttl / 3 - random * ttl / 30)
    assert schedule.danger == approx(start + ttl * 2 / 3)
    assert schedule.wake == schedule.due
    assert 0 < schedule.patience(term) <= ttl / 3 + CLOSE


@given(starts, st.floats(10, TTL_MAX), randoms)
def test_a_short_first_term_is_renewed_soon(start: float, ttl: float, random: float) -> None:
    """Not so one that the user has made shorter, or a later one."""
    short = Term(start, FIRST_TERM)
    schedule = RenewalSchedule(Plan(ttl), short, random)
    assert schedule.due == approx(start + FIRST_TERM / 10)
    schedule.extended(short, random)
    assert schedule.due > start + FIRST_TERM / 5
    schedule.renewed(short, random)
    assert schedule.due > start + FIRST_TERM / 5


@given(starts, st.floats(10, TTL_MAX), st.floats(0.005, 0.5), randoms)
def test_renewals_of_an_interval(start: float, ttl: float, share: float, random: float) -> None:
    """In proportion, where the user has made the term shorter."""
    schedule = RenewalSchedule(Plan(ttl, renew_every=share * ttl), Term(start, ttl), random)
    interval = share * ttl * (1 - random / 10)
    assert schedule.due == approx(start + interval)
    assert schedule.due <= schedule.danger
    schedule.extended(Term(start, ttl / 2), random)
    assert schedule.due <= start + interval


def test_processes_do_not_move_in_step() -> None:
    term = Term(0.0, 30.0)
    dues = [RenewalSchedule(Plan(30.0), term, number / 100).due for number in range(101)]
    assert dues == sorted(dues, reverse=True)
    assert dues[0] - dues[-1] == approx(1.0)


@given(starts, ttls, st.floats(1, 10), st.lists(randoms, max_size=50))
def test_at_least(start: float, ttl: float, times: float, renewals: list[float]) -> None:
    """It is renewed as often as ever, and runs out too early after no renewal."""
    plan = Plan(ttl, at_least=ttl * times)
    term = Term(start, plan.first)
    schedule = RenewalSchedule(plan, term, 0.5)
    for random in renewals:
        assert term.start + term.ttl >= start + plan.at_least - CLOSE
        assert term.start < schedule.due <= term.start + ttl / 3 + CLOSE
        term = Term(schedule.due, schedule.length(schedule.due))
        assert term.ttl >= ttl
        schedule.renewed(term, random)
    assert Plan(ttl, max_hold=ttl / 2, at_least=ttl * times).first == ttl / 2


@given(starts, ttls, st.lists(st.tuples(randoms, st.floats(0, 0.05)), max_size=30))
def test_renewed_for_ever(start: float, ttl: float, renewals: list[tuple[float, float]]) -> None:
    """Each term begins where the last one was due, or a little later, and ends later."""
    term = Term(start, ttl)
    schedule = RenewalSchedule(Plan(ttl), term, 0.5)
    for number, (random, late) in enumerate(renewals, 1):
        now = schedule.due + late * ttl
        assert schedule.length(now) == ttl
        later = Term(now, ttl)
        schedule.renewed(later, random)
        assert later.deadline > term.deadline
        assert schedule.renewals == number
        assert now < schedule.due < NEVER
        term = later


@given(starts, ttls, st.floats(TTL_MIN, TTL_MAX), randoms)
def test_a_term_of_the_users_own_length(
    start: float, ttl: float, own: float, random: float
) -> None:
    """Nothing is due out of its order, and the next renewal does not cut a longer term short."""
    schedule, term = (
        RenewalSchedule(Plan(ttl), Term(start, ttl), random),
        Term(start + ttl / 2, own),
    )
    schedule.extended(term, random)
    assert term.start < schedule.due < schedule.danger < term.deadline
    assert (
        Term(schedule.gather(term), schedule.length(schedule.gather(term))).deadline > term.deadline
    )
    assert schedule.renewals == 0


@given(starts, ttls, randoms, st.floats(0.34, 0.89))
def test_what_was_missed_is_tried_again_soon(
    start: float, ttl: float, random: float, at: float
) -> None:
    term, now = Term(start, ttl), start + at * ttl
    schedule = RenewalSchedule(Plan(ttl), term, 0.0)
    schedule.missed(AWAY, term, now, random)
    pause = min(1.0, ttl / 10)
    assert now + pause / 2 - CLOSE <= schedule.due <= now + pause + CLOSE
    assert schedule.gather(term) == schedule.due  # or it would be repeated at once
    assert schedule.cause == "connection refused"


def test_a_good_renewal_forgets_the_missed_ones() -> None:
    term = Term(0.0, 30.0)
    schedule = RenewalSchedule(Plan(30.0), term, 0.0)
    schedule.missed(AWAY, term, 10.0, 0.0)
    schedule.told(term)
    later = Term(21.0, 30.0)
    schedule.renewed(later, 0.0)
    assert (schedule.cause, schedule.warned, schedule.due) == (None, False, 31.0)
    assert schedule.loss("report", later, asking=False).reason == "expired"


def test_wake_is_whatever_comes_first() -> None:
    term = Term(0.0, 30.0)
    schedule = RenewalSchedule(Plan(30.0, renew=False), term, 0.0)
    assert schedule.wake == approx(20.0)
    schedule.told(term)
    assert schedule.wake == term.deadline == approx(27.0)
    schedule = RenewalSchedule(Plan(30.0), term, 0.0)
    schedule.told(term)
    schedule.missed(BUSY, term, 26.5, 0.0)
    assert (schedule.due, schedule.wake) == (27.5, 27.0)


# --- limits ------------------------------------------------------------------------------------


def test_not_renewed_by_choice() -> None:
    term = Term(0.0, 30.0)
    schedule = RenewalSchedule(Plan(30.0, renew=False), term, 0.0)
    assert schedule.due == NEVER
    danger = schedule.warning("report", Held(7, term), 20.0, asking=False)
    assert danger == Danger("report", 7, 7.0, "it is not renewed (renew=False)")
    loss = schedule.loss("report", term, asking=False)
    assert (loss.name, loss.reason) == ("report", "expired")
    assert "renew=False" in str(loss)
    schedule.extended(Term(20.0, 30.0), 0.0)  # by the user
    assert schedule.due == NEVER


@given(st.integers(0, 20), randoms)
def test_at_most_so_many_renewals(most: int, random: float) -> None:
    term = Term(0.0, 1.0)
    schedule = RenewalSchedule(Plan(1.0, max_renewals=most), term, random)
    count = 0
    while schedule.due < NEVER:
        schedule.missed(BUSY, term, schedule.due, random)  # does not count
        term = Term(schedule.due, 1.0)
        schedule.renewed(term, random)
        count += 1
    assert count == schedule.renewals == most
    loss = schedule.loss("report", term, asking=False)
    assert loss.reason == "expired"
    assert f"{most} time{'s'[: most != 1]} (max_renewals)" in str(loss)


@given(starts, st.floats(TTL_MIN, 1000), st.floats(TTL_MIN, 5000), randoms)
def test_never_held_longer(start: float, ttl: float, longest: float, random: float) -> None:
    plan = Plan(ttl, max_hold=longest)
    assert plan.first == min(ttl, longest)
    term = Term(start, plan.first)
    schedule = RenewalSchedule(plan, term, random)
    ends = [term.start + term.ttl]
    for _ in range(100):
        if schedule.due == NEVER:
            break
        now = schedule.due
        assert schedule.length(now) <= ttl
        term = Term(now, schedule.length(now))
        schedule.renewed(term, random)
        ends.append(term.start + term.ttl)
    assert ends == sorted(ends)
    assert ends[-1] <= start + longest + CLOSE
    if schedule.due == NEVER:
        assert ends[-1] == approx(start + longest)
        loss = schedule.loss("report", term, asking=False)
        assert loss.reason == "expired"
        assert "(max_hold)" in str(loss)


def test_the_users_own_renewal_stays_within_the_longest_hold() -> None:
    schedule = RenewalSchedule(Plan(10.0, max_hold=60.0), Term(100.0, 10.0), 0.0)
    assert schedule.length(105.0, 30.0) == 30.0
    assert schedule.length(105.0, 300.0) == 55.0
    assert RenewalSchedule(Plan(10.0), Term(100.0, 10.0), 0.0).length(105.0, 300.0) == 300.0


def test_stopped() -> None:
    term = Term(0.0, 30.0)
    schedule = RenewalSchedule(Plan(30.0), term, 0.0)
    schedule.stop("its Locks were closed", term)
    assert (schedule.due, schedule.wake) == (NEVER, approx(20.0))
    for begin in (schedule.renewed, schedule.extended):  # what was under way
        begin(Term(10.0, 30.0), 0.0)
        assert schedule.due == NEVER
    schedule.missed(AWAY, term, 11.0, 0.0)
    assert schedule.due == NEVER
    assert "closed" in str(schedule.loss("report", term, asking=False))


# --- why ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missed", "asking", "warned", "reason", "says"),
    [
        (None, False, True, "expired", "without being renewed in time"),
        (AWAY, False, True, "unreachable", "connection refused"),
        (AWAY, True, True, "unreachable", "connection refused"),
        (
            RenewalFailed(StatementError(Fault.DISCONNECTED, "reset")),
            False,
            True,
            "unreachable",
            "reset",
        ),
        (
            RenewalFailed(StatementError(Fault.REFUSED, "disk full")),
            False,
            True,
            "unreachable",
            "disk full",
        ),
        (
            RenewalFailed(StatementError(Fault.READ_ONLY, "standby")),
            False,
            True,
            "unreachable",
            "standby",
        ),
        (BUSY, False, True, "expired", "its row is in use"),
        (
            RenewalFailed(StatementError(Fault.SCHEMA, "no table")),
            False,
            True,
            "expired",
            "no table",
        ),
        (None, True, True, "unreachable", "there was no answer"),
        # It was stopped with a renewal on its way, and woke up when all was over.
        (None, True, False, "expired", "without being renewed in time"),
    ],
)
def test_the_reason(
    missed: RenewalFailed | None, asking: bool, warned: bool, reason: str, says: str
) -> None:
    term = Term(0.0, 30.0)
    schedule = RenewalSchedule(Plan(30.0), term, 0.0)
    if missed is not None:
        schedule.missed(missed, term, 10.0, 0.0)
    if warned:
        schedule.told(term)
    loss = schedule.loss("report", term, asking=asking)
    assert loss.reason == reason
    assert "'report' expired" in str(loss)
    assert says in str(loss)


def test_the_cause_of_danger() -> None:
    term = Term(0.0, 30.0)
    schedule = RenewalSchedule(Plan(30.0), term, 0.0)
    held = Held(7, term)
    assert schedule.warning("report", held, 20.0, asking=False).cause is None
    assert schedule.warning("report", held, 20.0, asking=True).cause is not None
    schedule.missed(AWAY, term, 12.0, 0.0)
    danger = schedule.warning("report", held, 20.0, asking=True)
    assert danger == Danger("report", 7, 7.0, "connection refused")
