"""The rules of waiting, on histories written by hand: silent on good ones, and finding bad ones."""

from __future__ import annotations

import pytest

from dblock.protocol.timing import Timing
from tests.soak.hand_offs import LOOK
from tests.soak.liveness import BOUND, ENOUGH, FAIR, STEPS
from tests.soak.spans import both, union, without
from tests.soak.story import Story
from tests.soak.times import AFTER

X, Y, Z = "worker-1-1", "worker-2-1", "worker-3-1"
LATE = 1.1 + BOUND  # y gets the name, which was free since 1.1, too late then
TTL = 3.0
# Two rules see what was handed off late: one of them also goes by what nobody told of.
LATE_BY_BOTH = {"prompt", "handed_off"}


class Waits(Story):
    """What those who wait for the name "a" were told."""

    def acquire(
        self, who: str, sent: float, told: float | None, outcome: str, wait: float = 60.0
    ) -> int:
        """An acquire that did not get the name, or never heard."""
        op = self.begin(sent, who, "acquire", name="a", ttl=TTL, wait=wait)
        if told is not None:
            error = {"error": "NotAcquired"} if outcome == "failed" else {}
            self.tell(told, who, op, "acquire", outcome, **error)
        return op

    def granted(
        self, who: str, sent: float, at: float, fence: int, released: float | None, wait: float = 60
    ) -> None:
        op = self.begin(sent, who, "acquire", name="a", ttl=TTL, wait=wait)
        detail = {"fence": fence, "began": at - 0.01, "deadline": at + 0.9 * TTL}
        self.tell(at, who, op, "acquire", "ok", **detail)
        if released is not None:
            self.act(who, op, "release", released - 0.1, released, "ok")

    def fault(self, start: float, end: float, place: int | None, **detail: object) -> None:
        op = self.begin(start, "nemesis-x", "fault", fault="x", place=place, **detail)
        self.tell(end, "nemesis-x", op, "fault", "ok")

    def yardstick(self, due: float, woke: float, who: str = Z) -> None:
        op = self.begin(due - 0.1, who, "yardstick", due=due)
        self.tell(woke, who, op, "yardstick", "ok")


@pytest.fixture
def story() -> Waits:
    """One has had the name until 1.1, and another has waited for it since 0.5."""
    story = Waits()
    story.granted(X, 0.0, 0.1, 1, released=1.1)
    return story


# --- prompt ------------------------------------------------------------------------------------


def test_a_name_that_is_passed_on_soon(story: Waits) -> None:
    story.granted(Y, 0.5, LATE - 0.1, 2, released=3.0)
    rules = story.check()
    assert rules["prompt"].checked == 2  # the first grant, and the second
    assert not story.broken()


def test_a_free_name_that_is_not_passed_on(story: Waits) -> None:
    story.granted(Y, 0.5, LATE + 0.1, 2, released=3.0)
    rules = story.check()
    (violation,) = rules["prompt"].violations
    assert {event.process for event in violation.events} == {X, Y}
    assert story.broken() == LATE_BY_BOTH


def test_waiters_that_come_and_go_in_vain(story: Waits) -> None:
    for number in range(4):
        story.acquire(Y, 1.0 + number / 2, 1.5 + number / 2, "failed", wait=0.5)
    assert story.broken() == LATE_BY_BOTH


def test_a_free_name_that_nobody_waits_for(story: Waits) -> None:
    story.granted(Y, 5.0, 5.1, 2, released=5.2)
    assert not story.broken()


def test_who_was_killed_while_it_waited_is_no_living_waiter(story: Waits) -> None:
    story.acquire(Y, 0.5, None, "unknown")
    story.granted(X, 5.0, 5.1, 2, released=5.2)
    assert not story.broken()


def test_a_name_that_somebody_might_have(story: Waits) -> None:
    """As long as a grant may have been made that nobody heard of, and a TTL after that."""
    story.acquire(Z, 1.0, 1.5, "unknown")
    story.granted(Y, 0.5, 1.5 + TTL + BOUND - 0.1, 2, released=6.0)
    assert not story.broken()


def test_a_name_that_nobody_can_have_any_more(story: Waits) -> None:
    story.acquire(Z, 1.0, 1.5, "unknown")
    story.granted(Y, 0.5, 1.5 + TTL + BOUND + 0.1, 2, released=6.0)
    assert story.broken() == LATE_BY_BOTH


def test_a_release_that_was_repeated(story: Waits) -> None:
    """After the first, of which nothing was heard, it may still have been held."""
    story.granted(X, 1.2, 1.3, 2, released=4.0)
    story.act(X, story.events[-1].op - 1, "release", 1.4, 1.5, "unknown")
    story.granted(Y, 1.4, 4.0 + BOUND - 0.1, 3, released=6.0)
    assert not story.broken()


def test_a_hold_that_was_left_to_run_out(story: Waits) -> None:
    story.granted(X, 1.2, 1.3, 2, released=None)
    story.granted(Y, 1.4, 1.3 + TTL + BOUND - 0.1, 3, released=6.0)
    assert not story.broken()
    story.acquire(Z, 6.0, 6.1 + BOUND, "failed", wait=BOUND)
    assert story.broken() == LATE_BY_BOTH


@pytest.mark.parametrize("place", [2, None])
def test_a_fault_that_touches_a_waiter_has_an_allowance(story: Waits, place: int | None) -> None:
    story.granted(Y, 0.5, LATE + AFTER + 0.4, 2, released=20.0)
    story.fault(1.0, 1.6, place)  # half a second of it, and what comes after it
    assert not story.broken()


def test_a_fault_that_touches_nobody_there_has_none(story: Waits) -> None:
    story.granted(Y, 0.5, LATE + 0.1, 2, released=20.0)
    story.fault(1.0, 1.5, 3)
    assert story.broken() == LATE_BY_BOTH


def test_the_allowance_of_a_fault_is_used_up(story: Waits) -> None:
    story.granted(Y, 0.5, LATE + AFTER + 0.6, 2, released=20.0)
    story.fault(1.0, 1.6, None)
    assert story.broken() == LATE_BY_BOTH


def test_a_pause_belongs_to_its_fault(story: Waits) -> None:
    story.granted(Y, 0.5, LATE + AFTER + 15.4, 2, released=30.0)
    story.fault(1.0, 1.6, None, pause=15.0)
    assert not story.broken()


@pytest.mark.parametrize(("late", "broken"), [(0.06, set()), (0.04, LATE_BY_BOTH)])
def test_the_bound_grows_with_the_yardstick(story: Waits, late: float, broken: set[str]) -> None:
    story.granted(Y, 0.5, LATE + STEPS * 0.05, 2, released=4.0)
    story.yardstick(1.5, 1.5 + late)
    story.yardstick(0.5, 0.9)  # it was slow, but before
    assert story.broken() == broken


def test_the_slowest_of_many_yardsticks_counts(story: Waits) -> None:
    story.granted(Y, 0.5, LATE + STEPS * 0.05, 2, released=4.0)
    story.yardstick(-9.0, 1.15)  # due long before, and over only in the span: 10 s late
    for pulse in range(20):
        story.yardstick(pulse / 10, pulse / 10 + 0.001)
    assert not story.broken()


def test_a_yardstick_that_has_not_come_back(story: Waits) -> None:
    story.granted(Y, 0.5, LATE + 1.0, 2, released=4.0)
    story.begin(2.0, Z, "yardstick", due=2.1)
    story.begin(9.0, Z, "inside")  # its process was there all the time
    assert not story.broken()


# --- handed off -------------------------------------------------------------------------------


def killed_while_it_waits(story: Waits) -> None:
    """Which might have had the name for a long time, but for the fences."""
    op = story.begin(0.6, Z, "acquire", name="a", ttl=10 * TTL, wait=60)
    assert op
    story.begin(1.3, "worker-3-2", "inside")  # who comes after it, in its place


def test_a_fence_that_is_not_missing_was_given_to_nobody(story: Waits) -> None:
    killed_while_it_waits(story)
    story.granted(Y, 0.5, LATE - 0.1, 2, released=4.0)
    assert not story.broken()


def test_who_died_is_no_reason_to_be_late(story: Waits) -> None:
    killed_while_it_waits(story)
    story.granted(Y, 0.5, LATE + 0.1, 2, released=4.0)
    assert story.broken() == {"handed_off"}


@pytest.mark.parametrize(("late", "broken"), [(-0.1, set()), (0.1, {"handed_off"})])
def test_a_name_that_was_granted_to_who_died(story: Waits, late: float, broken: set[str]) -> None:
    killed_while_it_waits(story)
    story.granted(Y, 0.5, LATE + TTL + LOOK + late, 3, released=9.0)
    assert story.broken() == broken


def test_it_is_kept_for_the_dead_where_nobody_sees_them(story: Waits) -> None:
    killed_while_it_waits(story)
    story.granted(Y, 0.5, LATE + Timing().grace - 0.1, 2, released=4.0)
    assert story.broken() == {"handed_off"}
    assert not story.broken(sees_deaths=False)


def test_a_fence_that_is_missing_where_nobody_died(story: Waits) -> None:
    """Who was cancelled when it had just been granted the name has given it back at once."""
    story.acquire(Z, 0.6, 1.2, "unknown")
    story.granted(Y, 0.5, LATE + 0.1, 3, released=4.0)
    assert not story.broken()
    cancelled = next(event for event in story.events if event.process == Z and event.at == 1.2)
    cancelled.detail["error"] = "CancelledError"
    assert story.broken() == {"handed_off"}


def test_waits_in_vain_hide_nothing(story: Waits) -> None:
    """Each is shorter than the bound, and together they are longer."""
    for number in range(3):
        start = 0.5 + number * 0.5
        story.acquire(Z, start, start + 0.49, "failed", wait=0.49)
    story.granted(Y, 2.0, LATE + 0.2, 2, released=4.0)
    assert "handed_off" in story.broken()


# --- left --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("queue", "broken"), [(None, set()), (["0000abcd"], {"left"})])
def test_who_is_left_in_the_queue(story: Waits, queue: list[str] | None, broken: set[str]) -> None:
    op = story.begin(9.0, "probe", "queue", name="a", waiters=queue)
    story.tell(9.0, "probe", op, "queue", "ok")
    assert story.check()["left"].checked == 1
    assert story.broken() == broken


# --- ghosts ------------------------------------------------------------------------------------


def test_a_try_of_a_free_name_that_was_waited_for_just_now(story: Waits) -> None:
    story.acquire(Y, 0.5, 2.0, "failed", wait=1.5)
    story.acquire(X, 1.9 + BOUND, 2.0 + BOUND, "failed", wait=0)
    rules = story.check()
    assert rules["ghosts"].checked == 1
    assert not story.broken()


def test_a_try_of_a_free_name_that_nobody_waits_for(story: Waits) -> None:
    story.acquire(Y, 0.5, 2.0, "failed", wait=1.5)
    for number in range(3):  # one name that is kept is one violation
        story.acquire(X, 2.1 + BOUND + number, 2.2 + BOUND + number, "failed", wait=0)
    (violation,) = story.check()["ghosts"].violations
    assert {event.process for event in violation.events} == {X, Y}
    assert story.broken() == {"ghosts"}


@pytest.mark.parametrize(("late", "broken"), [(-0.1, set()), (0.1, {"ghosts"})])
def test_a_try_of_a_name_that_is_kept_for_the_dead(
    story: Waits, late: float, broken: set[str]
) -> None:
    """For each that was killed while it waited, where nobody sees that."""
    for number in range(3):
        story.acquire(f"worker-{number + 4}-1", 0.5, None, "", wait=5.0)
        story.begin(2.0, f"worker-{number + 4}-2", "inside")  # who comes after it, in its place
    sent = 2.0 + TTL + BOUND + 3 * Timing().grace + late
    story.acquire(X, sent, sent + 0.1, "failed", wait=0)
    assert story.broken(sees_deaths=False) == broken
    assert story.broken() == {"ghosts"}


@pytest.mark.parametrize("outcome", ["failed", None])
def test_a_try_while_somebody_waits(story: Waits, outcome: str | None) -> None:
    """The name is for that one; and whoever was killed may still be in the queue."""
    story.acquire(Y, 4.0, 4.5 if outcome else None, outcome or "", wait=0.5)
    story.acquire(X, 4.1, 4.2, "failed", wait=0)
    assert not story.broken()


def test_a_try_that_was_not_refused(story: Waits) -> None:
    op = story.begin(4.0, X, "acquire", name="a", ttl=TTL, wait=0)
    story.tell(4.1, X, op, "acquire", "failed", error="Unavailable")
    assert not story.broken()


def test_a_fault_may_leave_a_ghost_for_a_while(story: Waits) -> None:
    story.acquire(Y, 0.5, 2.0, "failed", wait=1.5)
    story.fault(1.9, 2.0, 2)
    story.acquire(X, 2.0 + BOUND + AFTER - 0.1, 9.2, "failed", wait=0)
    assert not story.broken()
    story.acquire(X, 2.0 + BOUND + AFTER + 0.1, 9.4, "failed", wait=0)
    assert story.broken() == {"ghosts"}


# --- fair --------------------------------------------------------------------------------------


def equals(story: Waits, *numbers: int) -> None:
    """So many grants to each of some equal processes, all in the same time."""
    workers = []
    for place, number in enumerate(numbers, 1):
        who = f"worker-{place}-1"
        workers.append((who, story.begin(2.0, who, "worker", like="equal")))
        for count in range(number):
            at = 3.0 + count + place / 10
            op = story.begin(at, who, "acquire", name=f"name-{place}", ttl=TTL, wait=9)
            told = {"fence": count, "began": at, "deadline": at + 0.1}
            story.tell(at + 0.01, who, op, "acquire", "ok", **told)
    for who, op in workers:
        story.tell(900.0, who, op, "worker", "ok")


def test_equal_processes(story: Waits) -> None:
    equals(story, ENOUGH, int(FAIR) * ENOUGH)
    rules = story.check()
    assert rules["fair"].checked == 2
    assert not rules["fair"].violations


def test_a_process_that_is_left_out(story: Waits) -> None:
    equals(story, ENOUGH, ENOUGH, int(FAIR) * ENOUGH + 1)
    (violation,) = story.check()["fair"].violations
    assert "worker-3-1 got its names 81 times" in violation.what


def test_a_process_that_gets_nothing_at_all(story: Waits) -> None:
    equals(story, 2 * ENOUGH, 0)
    assert len(story.check()["fair"].violations) == 1


def test_few_grants_say_nothing(story: Waits) -> None:
    equals(story, 2 * ENOUGH - 2, 1)
    assert not story.check()["fair"].violations


def test_a_process_that_a_fault_touched_is_not_an_equal(story: Waits) -> None:
    equals(story, ENOUGH, ENOUGH, int(FAIR) * ENOUGH + 1)
    story.fault(5.0, 6.0, 3)
    assert not story.check()["fair"].violations


# --- spans -------------------------------------------------------------------------------------


def test_spans() -> None:
    assert union([(3, 4), (1, 2), (2, 2.5), (5, 9), (6, 7)]) == [(1, 2.5), (3, 4), (5, 9)]
    assert both([(0, 4), (5, 9)], [(1, 2), (3, 6), (8, 10)]) == [(1, 2), (3, 4), (5, 6), (8, 9)]
    assert without([(0, 4), (5, 9)], [(1, 2), (3, 6)]) == [(0, 1), (2, 3), (6, 9)]
    assert without([(0, 4)], [(-1, 5)]) == []
    assert without([(0, 4)], []) == [(0, 4)]
    assert without([], [(0, 4)]) == []
