"""What follows from the outcomes at the members: no I/O, no clock."""

from __future__ import annotations

from dblock import Unavailable
from dblock.protocol.ballot import (
    Ballot,
    Holding,
    Pending,
    Split,
    Stamping,
    Unreachable,
    majority,
)
from dblock.protocol.lease import Held, Refused
from dblock.protocol.state import LockRow
from dblock.protocol.term import Term

TTL = 30.0
AWAY = Unavailable("away")


def held(fence: int, start: float = 0.0) -> Held:
    return Held(fence, Term(start, TTL))


def refused(token: str | None = None) -> Refused:
    if token is None:
        return Refused(None)
    return Refused(LockRow("report", 3, token, token, None, None, 20.0))


def test_majorities() -> None:
    assert [majority(size) for size in (3, 5, 7)] == [2, 3, 4]


def test_fences_that_agree_need_no_stamp() -> None:
    ballot = Ballot(3)
    assert ballot.verdict() == Pending()
    ballot.granted(0, held(4))
    assert ballot.verdict() == Pending()
    ballot.granted(2, held(4))
    verdict = ballot.verdict()
    assert isinstance(verdict, Holding)
    assert verdict.held.fence == 4


def test_the_term_is_the_one_that_ends_first() -> None:
    ballot = Ballot(3)
    ballot.granted(0, held(4, start=1.0))
    ballot.granted(1, held(4, start=0.5))
    verdict = ballot.verdict()
    assert isinstance(verdict, Holding)
    assert verdict.held.term == Term(0.5, TTL)


def test_a_smaller_fence_is_stamped_before_it_counts() -> None:
    ballot = Ballot(3)
    ballot.granted(0, held(4))
    ballot.granted(1, held(7))
    assert ballot.verdict() == Stamping(7, (0,))
    assert ballot.verdict() == Pending()
    ballot.stamped(0, 7)
    verdict = ballot.verdict()
    assert isinstance(verdict, Holding)
    assert verdict.held.fence == 7


def test_a_later_fence_does_not_move_the_holds_own() -> None:
    ballot = Ballot(5)
    for member, fence in enumerate((2, 5, 3)):
        ballot.granted(member, held(fence))
    assert ballot.verdict() == Stamping(5, (0, 2))
    ballot.granted(3, held(9))
    ballot.stamped(0, 5)
    verdict = ballot.verdict()
    assert isinstance(verdict, Holding)
    assert verdict.held.fence == 5


def test_a_stamp_that_fails_does_not_count() -> None:
    ballot = Ballot(3)
    ballot.granted(0, held(4))
    ballot.granted(1, held(7))
    ballot.verdict()
    ballot.failed(0, AWAY)
    assert ballot.verdict() == Pending()
    ballot.refused(2, refused("other"))
    assert isinstance(ballot.verdict(), Split)


def test_a_queues_grant_counts_after_its_stamp_alone() -> None:
    ballot = Ballot(3)
    ballot.granted(0, held(4), proven=False)
    ballot.granted(1, held(4))
    assert ballot.verdict() == Stamping(4, (0,))
    ballot.stamped(0, 4)
    assert isinstance(ballot.verdict(), Holding)


def test_the_votes_alone_make_the_fence() -> None:
    """A queue's grant may come from a member that has forgotten fences, and is no vote."""
    for refuses in (False, True):
        ballot = Ballot(3)
        ballot.granted(0, held(3), proven=False)
        ballot.granted(1, held(4))
        assert ballot.verdict() == Stamping(4, (0,))
        if refuses:
            ballot.refused(0, refused())
            assert ballot.verdict() == Pending()
        ballot.granted(2, held(11))
        assert ballot.verdict() == Stamping(11, (1,))
        ballot.stamped(1, 11)
        verdict = ballot.verdict()
        assert isinstance(verdict, Holding)
        assert verdict.held.fence == 11


def test_refusals_name_the_holder_of_most_members() -> None:
    ballot = Ballot(5)
    for member, token in enumerate(("one", "two", "two")):
        ballot.refused(member, refused(token))
    verdict = ballot.verdict()
    assert isinstance(verdict, Split)
    assert verdict.refused.state is not None
    assert verdict.refused.state.token == "two"


def test_a_majority_that_is_away() -> None:
    ballot = Ballot(3)
    ballot.failed(0, None)
    ballot.failed(1, AWAY)
    assert ballot.verdict() == Unreachable((AWAY,))
    # The one that was not counted on answers after all.
    ballot.granted(0, held(1))
    ballot.granted(2, held(1))
    assert isinstance(ballot.verdict(), Holding)


def test_one_refusal_and_one_failure_are_a_refusal() -> None:
    ballot = Ballot(3)
    ballot.granted(0, held(1))
    ballot.failed(1, AWAY)
    assert ballot.verdict() == Pending()
    ballot.refused(2, refused())
    assert isinstance(ballot.verdict(), Split)
    assert ballot.begin_again() == {1, 2}
    assert ballot.unanswered == {1, 2}
