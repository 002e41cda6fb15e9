"""What happens next to a member's record: no I/O, no clock."""

from __future__ import annotations

from dblock.protocol.membership import Rewrite, joined, next_step, state_of
from dblock.protocol.state import Member

ALL, TTL = "a,b,c", 30.0
MS = 30_000
NONE = Member(None, 0, 0.0, "1", 0)
NEW = Member(f"{ALL} new", MS, 0.0, "1", 0)
JOINED = Member(f"{ALL} 1", MS, -5.0, "1", 7)
RESTARTED = Member(f"{ALL} 1", MS, -5.0, "2", 3)
PAUSING = Member(f"{ALL} pausing 2", MS, 4.0, "2", 3)
PAUSED = PAUSING._replace(opens=-0.1)


def test_the_states() -> None:
    members = (NONE, NEW, JOINED, RESTARTED, PAUSING, PAUSED)
    assert [state_of(ALL, member) for member in members] == [
        "none", "new", "joined", "restarted", "pausing", "pausing",
    ]  # fmt: skip
    assert state_of(ALL, PAUSED._replace(instance="3")) == "restarted"
    assert state_of(ALL, Member(f"{ALL} ", MS, 0.0, "", 0)) == "joined"


def test_the_first_use_needs_all() -> None:
    assert next_step(ALL, [NONE, NONE, NONE], 0, TTL) == Rewrite(None, f"{ALL} new", MS)
    assert next_step(ALL, [NONE, NONE, None], 0, TTL) is None
    assert next_step(ALL, [NEW, NEW, NONE], 0, TTL) is None
    assert next_step(ALL, [NEW, NEW, NEW], 0, TTL) == Rewrite(NEW.value, joined(ALL, "1"), MS)
    # Whoever votes has seen that all were new.
    assert next_step(ALL, [NEW, JOINED, None], 0, TTL) == Rewrite(NEW.value, joined(ALL, "1"), MS)


def test_a_member_without_its_record_pauses_if_others_vote() -> None:
    step = next_step(ALL, [NONE, JOINED, JOINED], 0, TTL)
    assert step == Rewrite(None, f"{ALL} pausing 1", MS, pause=TTL)
    assert next_step(ALL, [NONE, JOINED, None], 0, TTL) is None


def test_a_member_that_was_started_again_pauses_for_the_longest_ttl_of_all() -> None:
    longer = JOINED._replace(longest=2 * MS)
    step = next_step(ALL, [RESTARTED, longer, JOINED], 0, TTL)
    assert step == Rewrite(RESTARTED.value, f"{ALL} pausing 2", 2 * MS, pause=2 * TTL)
    assert next_step(ALL, [RESTARTED, JOINED, None], 0, TTL) is None
    assert next_step(ALL, [RESTARTED, RESTARTED, JOINED], 0, TTL) is not None


def test_it_votes_after_the_pause_above_the_others_fences() -> None:
    assert next_step(ALL, [PAUSING, JOINED, JOINED], 0, TTL) is None
    step = next_step(ALL, [PAUSED, JOINED, JOINED._replace(fence=9)], 0, TTL)
    assert step == Rewrite(PAUSED.value, joined(ALL, "2"), MS, fence=9)
    assert next_step(ALL, [PAUSED, JOINED, None], 0, TTL) is None


def test_it_pauses_again_for_a_longer_ttl_that_it_did_not_know() -> None:
    longer = JOINED._replace(longest=2 * MS)
    step = next_step(ALL, [PAUSED, JOINED, longer], 0, TTL)
    assert step == Rewrite(PAUSED.value, f"{ALL} pausing 2", 2 * MS, pause=2 * TTL)
    known = PAUSED._replace(longest=2 * MS)
    step = next_step(ALL, [known, JOINED, longer], 0, TTL)
    assert step == Rewrite(PAUSED.value, joined(ALL, "2"), 2 * MS, fence=7)


def test_a_longer_ttl_is_recorded_before_it_is_granted() -> None:
    assert next_step(ALL, [JOINED] * 3, 0, TTL) is None
    assert next_step(ALL, [JOINED] * 3, 0, 2 * TTL) == Rewrite(
        JOINED.value, joined(ALL, "1"), 2 * MS
    )
