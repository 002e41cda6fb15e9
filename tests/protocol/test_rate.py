"""The arithmetic of rate limits, over a row in memory."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest

from dblock.dialects import SQLite
from dblock.policy import Timeouts
from dblock.protocol.exchange import Exchange
from dblock.protocol.rate import SECOND, CellRate, TakePlace, take
from dblock.protocol.steps import Execute, Sleep
from tests.protocol.rows import Rows, reading
from tests.support import examples

DIALECT = SQLite(None, "dblock_", Timeouts())


def exchange(wait: float, now: float) -> Exchange:
    return Exchange(DIALECT, "api", now, wait, DIALECT.timeouts.socket, now)


class Row:
    """The row of one rate limit; the statement is as its contract says."""

    def __init__(self) -> None:
        self.tat, self.mark, self.number = 0, "", 0

    def call(self, cells: CellRate, wait: float, now: float) -> float | None:
        """Return when the call's place is due; None if it gets none."""
        self.number += 1
        procedure = reading(DIALECT, take(exchange(wait, now), str(self.number), cells))
        step, slept = next(procedure), 0.0
        while True:
            try:
                if isinstance(step, Sleep):
                    slept += step.seconds
                    step = procedure.send(Rows((), 0, now, now + slept))
                    continue
                assert isinstance(step, Execute)
                assert isinstance(step.command, TakePlace)
                rows = [self._carry_out(step.command, round(now * SECOND))]
                step = procedure.send(Rows(rows, 1, now, now))
            except StopIteration as end:
                return None if end.value is not None else now + slept

    def _carry_out(self, command: TakePlace, now: int) -> tuple[str, int, int]:
        if self.mark != command.mark and self.tat + command.step <= now + command.ahead:
            self.tat, self.mark = max(self.tat, now) + command.step, command.mark
        return self.mark, self.tat, now


@pytest.mark.parametrize("limit", [1, 3, 7, 60, 99, 100_000])
def test_no_rounding_lets_more_through(limit: int) -> None:
    cells = CellRate.of(limit, 1.0, limit, 1)
    assert limit * cells.step >= SECOND
    assert cells.step - 1 < SECOND / limit
    assert cells.tolerance == limit * cells.step


@pytest.mark.hypothesis
def test_no_window_has_more_than_the_limit_allows() -> None:
    for seed in range(examples(40)):
        random, row, now = Random(seed), Row(), 1000.0
        limit, per = random.randint(1, 20), random.uniform(0.5, 20)
        burst, times = random.randint(1, limit), []
        cells = CellRate.of(limit, per, burst, 1)
        for _ in range(60):
            now += random.choice((0.0, random.expovariate(2 * limit / per)))
            due = row.call(cells, random.choice((0.0, 0.0, random.uniform(0, per))), now)
            if due is not None:
                times.append(due)
        times.sort()
        for first, start in enumerate(times):
            for last in range(first, len(times)):
                most = burst + (times[last] - start + 2e-6) * limit / per
                assert last - first + 1 <= math.floor(most), (seed, times)


def test_waiters_are_served_in_the_order_of_their_statements() -> None:
    row, cells = Row(), CellRate.of(10, 1.0, 1, 1)
    due = [row.call(cells, 5.0, 1000.0) for _ in range(20)]
    times = [one for one in due if one is not None]
    assert times == pytest.approx([1000 + number / 10 for number in range(20)])
    assert all(later - earlier >= 0.1 - 1e-6 for earlier, later in pairwise(times))
    assert row.call(cells, 1.9, 1000.0) is None
    assert row.call(cells, 2.0, 1000.0) == pytest.approx(1002)


def test_a_refusal_says_when_there_is_a_place() -> None:
    row, cells = Row(), CellRate.of(2, 1.0, 2, 1)
    assert [row.call(cells, 0.0, 1000.0) for _ in range(3)] == [1000, 1000, None]
    procedure = reading(DIALECT, take(exchange(0.0, 1000.25), "another", cells))
    step = next(procedure)
    assert isinstance(step, Execute)
    rows = [row._carry_out(step.command, round(1000.25 * SECOND))]  # type: ignore[arg-type] # a TakePlace
    with pytest.raises(StopIteration) as end:
        procedure.send(Rows(rows, 1, 1000.25, 1000.25))
    assert end.value.value == pytest.approx(0.25)
    assert row.call(cells, 0.0, 1000.5) == 1000.5
