"""A schedule is a line of text, and means the same whenever it is read."""

from __future__ import annotations

import pytest

from tests.simulation.schedule import After, Fault, Later, Schedule

LINE = "a.grant#2+1.5 a.release#1>b.look#1< b.grant#1!unanswered a.renew#1!pause:8"


def test_a_line_tells_all_there_is() -> None:
    schedule = Schedule.parse(LINE)
    assert schedule.changes == (
        ("a.grant#2", Later(1.5)),
        ("a.release#1", After("b.look#1<")),
        ("b.grant#1", Fault("unanswered")),
        ("a.renew#1", Fault("pause", 8)),
    )
    assert str(schedule) == LINE


def test_nothing_is_the_plain_course() -> None:
    assert Schedule.parse("") == Schedule()


@pytest.mark.parametrize("word", ["a.grant+1", "a.grant#1", "a.grant#1!", "a.grant#1>", "#1+1"])
def test_what_is_no_deviation_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="no deviation"):
        Schedule.parse(word)


def test_one_change_can_be_taken_out() -> None:
    assert str(Schedule.parse(LINE).without(1)) == (
        "a.grant#2+1.5 b.grant#1!unanswered a.renew#1!pause:8"
    )
