"""Each rule of the checker, on histories written by hand: it is silent on good, and finds bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import report
from tests.soak.checker import PATIENCE, RULES, count
from tests.soak.facts import History, Rule, Violation
from tests.soak.history import PROBE, RESTORED, Event, Recorder, Tail, now, read
from tests.soak.ledger import Ledger, Row
from tests.soak.story import Story


@pytest.fixture
def story() -> Story:
    """Two holds, one after the other, with a write each; nothing is wrong with them."""
    story = Story()
    first = story.hold("x", 0, 0.1, 1, fence=1)
    story.write("x", 0.5, 1)
    story.act("x", first, "release", 0.6, 0.7, "ok")
    second = story.hold("y", 0.2, 0.8, 1.7, fence=2)
    story.write("y", 1.0, 2)
    story.act("y", second, "renew", 1.1, 1.2, "ok", deadline=2.0)
    story.act("y", second, "inside", 1.3, 1.3, "ok", deadline=2.0)
    return story


def test_good(story: Story) -> None:
    rules = story.check()
    assert not {name for name, rule in rules.items() if rule.violations}
    assert {name: rule.checked for name, rule in rules.items()} == {
        "exclusion": 3,
        "unique": 3,
        "growing": 3,
        "losses": 3,
        "acknowledged": 2,
        "refused": 0,
        "known": 2,
        "chain": 2,
        "stale": 2,
        "live": 1,
        "prompt": 0,
        "handed_off": 1,
        "ghosts": 0,
        "fair": 0,
        "left": 0,
        "promised": 8,
    }
    assert len(RULES) == len(rules)
    assert all(rule.says for rule in rules.values())


def test_what_an_unknown_outcome_may_be(story: Story) -> None:
    """Unknown and killed writes may be there or not; an unknown release has ended the hold."""
    story.write("y", 1.4, 2, "unknown")
    story.write("y", 1.45, 2, None)
    story.write("y", 1.5, 2, "unknown", logged=False)
    story.write("y", 1.55, 2, None, logged=False)
    story.write("y", None, 2, None, logged=False)
    story.write("y", None, 2, "failed", logged=False)
    third = story.hold("z", 2.1, 2.2, 3, fence=5)  # 3 and 4 were given to nobody who knows
    story.act("z", third, "release", 2.3, 2.9, "unknown")
    story.hold("x", 2.3, 2.4, 3, fence=6)
    assert not story.broken()


@pytest.mark.parametrize("kind", ["renew", "write", "inside", "release"])
def test_good_losses(story: Story, kind: str) -> None:
    """A loss is told at or after the deadline, or for a reason that says nothing of the lease."""
    third = story.hold("x", 2.1, 2.2, 3, fence=3)
    story.act("x", third, kind, 2.9, 3.0, "failed", error="LockLost", reason="expired")
    fourth = story.hold("x", 3.1, 3.2, 4, fence=4)
    story.act("x", fourth, kind, 3.3, 3.4, "failed", error="LockLost", reason="unknown")
    story.hold("y", 3.3, 3.4, 5, fence=5)  # the other one may have been told just before
    assert not story.broken()


def test_a_released_hold_that_was_lost_is_no_loss(story: Story) -> None:
    """The second release finds the work of the first, of which it did not hear."""
    third = story.hold("x", 2.1, 2.2, 3, fence=3)
    story.act("x", third, "release", 2.3, 2.4, "unknown", error="Unavailable")
    story.act("x", third, "release", 2.4, 2.5, "failed", error="LockLost", reason="forced")
    assert not story.broken()


# --- one rule each -----------------------------------------------------------------------------


def test_exclusion_by_deadline(story: Story) -> None:
    story.hold("z", 1.8, 1.9, 3, fence=3)  # y had it renewed until 2.0
    assert story.broken() == {"exclusion"}


def test_exclusion_by_what_a_holder_saw(story: Story) -> None:
    third = story.hold("x", 2.1, 2.2, 3, fence=3)
    story.act("x", third, "inside", 3.1, 3.1, "ok", deadline=3.4)  # somebody has renewed it
    story.hold("z", 3.1, 3.2, 4, fence=4)
    assert story.broken() == {"exclusion"}


def test_exclusion_across_a_hold_between(story: Story) -> None:
    story.hold("x", 2.1, 2.2, 9, fence=3)
    story.hold("y", 2.1, 2.3, 2.4, fence=4)
    story.hold("z", 2.5, 2.6, 3, fence=5)  # overlaps with x, not with y
    found = story.check()["exclusion"].violations
    assert len(found) == 2
    assert {event.process for event in found[1].events} == {"x", "z"}


def test_exclusion_until_the_release(story: Story) -> None:
    third = story.hold("x", 2.1, 2.2, 4, fence=3)
    story.act("x", third, "release", 2.9, 3.0, "ok")
    story.hold("z", 2.5, 2.8, 3, fence=4)
    assert story.broken() == {"exclusion"}


def test_other_names_do_not_exclude(story: Story) -> None:
    story.hold("z", 1.4, 1.5, 3, fence=1, name="b")
    assert not story.broken()


def test_unique(story: Story) -> None:
    story.hold("z", 2.1, 2.2, 3, fence=2)
    assert story.broken() == {"unique"}


def test_growing(story: Story) -> None:
    story.hold("z", 2.1, 2.2, 3, fence=9)
    story.hold("z", 3.1, 3.2, 4, fence=8)
    assert story.broken() == {"growing"}


def test_growing_of_holds_that_were_over_at_once(story: Story) -> None:
    story.hold("z", 2.1, 2.2, 2.2, fence=9)
    story.hold("z", 3.1, 3.2, 3.2, fence=8)
    assert story.broken() == {"growing"}


@pytest.mark.parametrize("reason", ["expired", "taken over", "forced"])
@pytest.mark.parametrize("kind", ["renew", "write", "inside", "release"])
def test_losses(story: Story, kind: str, reason: str) -> None:
    third = story.hold("x", 2.1, 2.2, 3, fence=3)
    story.act("x", third, kind, 2.3, 2.4, "failed", error="LockLost", reason=reason)
    assert story.broken() == {"losses"}


@pytest.mark.parametrize(("begun", "excused"), [(2.2, True), (2.5, False)])
def test_a_restored_member_may_have_been_one_of_the_majority(
    story: Story, begun: float, excused: bool
) -> None:
    restored = story.begin(begun, "members", "fault", fault=RESTORED)
    story.tell(2.7, "members", restored, "fault", "ok")
    third = story.hold("x", 2.1, 2.2, 3, fence=3)
    story.act("x", third, "renew", 2.3, 2.4, "failed", error="LockLost", reason="forced")
    assert story.broken() == (set() if excused else {"losses"})


def test_acknowledged(story: Story) -> None:
    story.write("y", 1.4, 2, "ok", logged=False)
    assert story.broken() == {"acknowledged"}
    assert not story.broken(keeps_commits=False)


@pytest.mark.parametrize("step", ["failed", "unknown", None])
def test_refused(story: Story, step: str | None) -> None:
    story.write("y", 1.4 if step == "failed" else None, 2, step)
    assert story.broken() == {"refused"}


def test_known(story: Story) -> None:
    story.rows.append(Row("nobody:1", "a", 2, 2, 3, 3))
    assert story.broken() == {"known"}


def test_known_with_another_fence(story: Story) -> None:
    last = story.rows[-1]
    story.rows[-1] = Row(last.id, last.name, 3, last.seen, last.value, last.place)
    assert story.broken() == {"known"}


def test_chain_with_a_lost_update(story: Story) -> None:
    story.write("y", 1.4, 2, seen=1)  # as the one before it has
    assert story.broken() == {"chain"}


def test_chain_with_a_lost_row(story: Story) -> None:
    story.write("y", 1.4, 2, "unknown")
    story.write("y", 1.5, 2)
    del story.rows[2]
    assert story.broken() == {"chain"}


def test_chain_with_another_end(story: Story) -> None:
    assert story.broken(register=3) == {"chain"}


def test_stale_after_a_write(story: Story) -> None:
    story.hold("z", 2.1, 2.2, 2.3, fence=7)
    story.write("z", 0.9, 7, "unknown")  # its hold is not known to have begun by then
    story.write("y", 0.95, 2)
    assert story.broken() == {"stale"}


def test_stale_after_a_grant(story: Story) -> None:
    story.hold("z", 2.1, 2.2, 3, fence=3)
    story.write("y", 2.3, 2)  # nobody has written with 3
    assert story.broken() == {"stale"}


def test_not_stale_when_the_takeover_has_waited(story: Story) -> None:
    story.write("y", 2.3, 2)
    story.hold("z", 2.1, 2.4, 3, fence=3)
    assert not story.broken()


def test_live(story: Story) -> None:
    for number in range(PATIENCE + 1):
        op = story.begin(10 + number, PROBE, "acquire", name="a")
        story.tell(10.5 + number, PROBE, op, "acquire", "failed")
    assert story.broken(probed=False) == {"live"}
    assert story.broken() == {"live"}  # too late


def test_live_without_a_probe(story: Story) -> None:
    assert story.broken(probed=False) == {"live"}


def test_promised(story: Story) -> None:
    op = story.begin(2.1, "x", "acquire", name="a")
    story.tell(2.2, "x", op, "acquire", "error", error="ZeroDivisionError")
    assert story.broken() == {"promised"}


# --- the verdict, and the files ----------------------------------------------------------------


def rule(name: str, violations: int) -> Rule:
    return Rule(name, "", 1, [Violation("")] * violations)


@pytest.mark.parametrize(
    ("lacks", "broken", "good"),
    [
        ([], [], True),
        ([], ["stale"], False),
        (["guarded"], [], False),
        (["guarded"], ["chain"], False),
        (["guarded"], ["stale", "chain"], True),
        (["guarded"], ["stale", "exclusion"], False),
        (["fenced"], [], False),
        (["fenced"], ["growing"], False),
        (["fenced"], ["exclusion", "growing"], True),
        (["fenced"], ["exclusion", "stale"], False),
        (["guarded", "fenced"], ["exclusion", "stale"], True),
        (["guarded", "fenced"], ["exclusion"], False),
    ],
)
def test_verdict(lacks: list[str], broken: list[str], good: bool) -> None:
    rules = [rule(check.__name__, check.__name__ in broken) for check in RULES]
    assert report.verdict(rules, **dict.fromkeys(lacks, False))[0] is good


def test_an_excerpt_shows_each_event_once(story: Story) -> None:
    story.hold("z", 1.8, 1.9, 3, fence=3)
    (violation,) = story.check()["exclusion"].violations
    lines = report.excerpt(violation)
    assert "two holders at once" in lines[0]
    assert len(lines) == len(set(lines)) > 4


def test_files(tmp_path: Path) -> None:
    recorders = [Recorder(tmp_path, name) for name in ("x", "y")]
    tail, start = Tail(tmp_path), now() + 9
    for number, recorder in enumerate(recorders):
        operation = recorder.begin("acquire", name="a", ttl=1)
        tail.follow()
        operation.tell("ok", start + number, fence=number, deadline=start + 1)
    recorders[0].begin("write", name="a")
    recorders[1].begin("fault", fault="cut").tell("ok")
    recorders[1].begin("fault", fault="late").tell("failed")
    for recorder in recorders:
        recorder.close()
    tail.follow()
    assert tail.counts["acquire", "ok"] == 2
    assert tail.faults == {"cut": 1}
    events = read(tmp_path)
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert Event(start, "x", 1, "acquire", "ok", {"fence": 0, "deadline": start + 1}) in events
    assert count(History(events, Ledger({}, []), [])) == {
        ("acquire", "ok"): 2,
        ("write", "unknown"): 1,
        ("fault", "ok"): 1,
        ("fault", "failed"): 1,
    }


def test_a_process_that_was_killed_while_it_wrote(tmp_path: Path) -> None:
    """A part of its last line is left: what it had begun has no outcome."""
    recorder = Recorder(tmp_path, "worker")
    operation = recorder.begin("write", name="a")
    operation.tell("ok")
    recorder.close()
    file = tmp_path / "worker.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    assert [event.step for event in read(tmp_path)] == ["sent"]
