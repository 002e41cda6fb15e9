"""The benchmarks run, in miniature, and judge what they measure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import loops, majority, observing, pairs, rising, scale, snapshot, tries, turn
from benchmarks.figures import Figure, Target
from benchmarks.groups import GROUPS, TARGETS
from benchmarks.handoffs import Turn, handoffs, summary
from benchmarks.majority import Taken
from benchmarks.page import BEGIN, END, PAGE
from benchmarks.raw import RawLock
from benchmarks.report import merge, read_json, target_table
from tests.patience import SECONDS
from tests.servers import find_mysql

ROOT = Path(__file__).parent.parent
MS = 1_000_000  # in ns


#: One group for each way of measuring: alone, in processes, by the server's count, side by side,
#: and over servers of which one is away.
GROUPS_RUN = (
    pairs.GROUP,
    loops.ONE,
    loops.SLOTS,
    turn.GROUP,
    observing.GROUP,
    rising.GROUP,
    tries.GROUP,
    snapshot.GROUP,
    scale.GROUP,
    majority.GROUP,
)


def test_the_command_measures(tmp_path: Path) -> None:
    """Without other libraries, and so small that the figures mean nothing."""
    command = [sys.executable, "-m", "benchmarks", "--smoke", "--no-peers"]
    command += [part for group in GROUPS_RUN for part in ("--only", group)]
    command += ["--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * SECONDS)
    assert done.returncode == 0, done.stderr
    figures = read_json(tmp_path / "results.json")
    assert {figure.group for figure in figures} == set(GROUPS_RUN)
    for target in TARGETS:
        measured = target.group in GROUPS_RUN and ("mysql" not in target.scenario or find_mysql())
        if measured and "volatile" not in target.who and "redis" not in target.against:
            assert target.judge(figures) is not None, f"nothing was measured for {target}"
    run = json.loads((tmp_path / "results.json").read_text())
    with_targets = {target.group for target in TARGETS} & set(GROUPS_RUN)
    assert {target["group"] for target in run["targets"]} == with_targets


def test_an_unknown_group_is_refused() -> None:
    command = (sys.executable, "-m", "benchmarks", "--only", "everything")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "there are pairs" in done.stderr


def test_the_page_has_a_place_for_the_figures() -> None:
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1


def test_a_hand_off_goes_to_another_process() -> None:
    """Process 0 takes the lock back at 2 and 3 ms, while process 1 waits from 1 to 5 ms."""
    first = [Turn(0, 1 * MS, 1 * MS), Turn(1 * MS, 2 * MS, 2 * MS), Turn(2 * MS, 3 * MS, 3 * MS)]
    second = [Turn(1 * MS, 5 * MS, 5 * MS)]
    assert handoffs([first, second], stop=10 * MS) == [4 * MS]
    found = summary([first, second], seconds=0.01)
    assert (found.p50, found.to_another, found.in_all) == (4000.0, 100.0, 400.0)
    assert (found.longest_wait, found.unfairness) == (4.0, 3.0)


def test_what_comes_after_the_end_counts_for_the_wait_only() -> None:
    first, second = [Turn(0, 1 * MS, 1 * MS)], [Turn(0, 20 * MS, 20 * MS)]
    assert handoffs([first, second], stop=10 * MS) == []
    found = summary([first, second], seconds=0.01)
    assert (found.in_all, found.longest_wait) == (100.0, 20.0)


def test_a_pair_that_fails_is_counted_with_its_reason() -> None:
    """Of three pairs one is not acquired, and one cannot be released."""
    results = iter([True, False, True])
    releases = iter([None, OSError("no majority")])

    def release() -> None:
        if error := next(releases):
            raise error

    class Client:
        def lock(self, name: str) -> RawLock:
            return RawLock(lambda: next(results), release)

        def close(self) -> None:
            pass

    taken = Taken()
    for _ in range(3):
        taken.pair(Client())
    assert len(taken.seconds) == 3
    assert [str(error) for error in taken.errors] == ["not acquired within 3 s", "no majority"]


@pytest.mark.parametrize(("part", "found"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)])
def test_a_share_of_the_pairs_took_no_longer(part: float, found: float) -> None:
    taken = Taken([number / 1e6 for number in range(100, 0, -1)])
    assert taken.share(part) == pytest.approx(found)


@pytest.mark.parametrize(
    ("at_least", "against", "bound", "met"),
    [
        (False, "raw", 1.9, False),
        (False, "raw", 2.0, True),
        (True, "raw", 2.0, True),
        (True, "raw", 2.1, False),
        (False, "", 30.0, True),
        (False, "", 29.0, False),
    ],
)
def test_a_target_is_judged_round_by_round(
    at_least: bool, against: str, bound: float, met: bool
) -> None:
    """The rounds' ratios are 1, 2 and 4, so their median is 2; that of the medians is 3."""
    figures = [
        Figure("group", "scenario", "what", "us", "ours", (10.0, 40.0, 30.0)),
        Figure("group", "scenario", "what", "us", "raw", (10.0, 20.0, 7.5)),
        Figure("group", "another", "what", "us", "raw", (1.0, 1.0, 1.0)),
    ]
    target = Target("group", "scenario", "what", "ours", bound, against, at_least=at_least)
    verdict = target.judge(figures)
    assert verdict is not None
    assert verdict.met is met
    assert Target("group", "scenario", "what", "nobody", bound).judge(figures) is None


def test_a_ratio_to_nothing_is_a_verdict_that_can_be_shown() -> None:
    """What takes no time that the clock can tell comes out as 0."""
    target = TARGETS[0]
    figures = [
        Figure(target.group, target.scenario, target.what, "us", who, (figure,))
        for who, figure in ((target.who, 1.0), (target.against, 0.0))
    ]
    (found,) = (one for one in target_table(figures).columns if one.header == "found")
    assert "infinite" in found.cells


def test_a_group_that_is_measured_anew_replaces_its_figures() -> None:
    first, second = list(GROUPS)[:2]
    old = [Figure(group, "s", "w", "us", "a", (1.0,)) for group in (first, second)]
    new = [Figure(first, "s", "w", "us", "b", (2.0,))]
    assert [(figure.group, figure.who) for figure in merge(old, new)] == [
        (first, "b"),
        (second, "a"),
    ]


GROUP = next(iter(GROUPS))
FIGURE = {
    "group": GROUP,
    "scenario": "s",
    "what": "w",
    "unit": "us",
    "who": "a",
    "rounds": [1.0],
}


def test_figures_of_a_group_that_is_gone_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"figures": [FIGURE, FIGURE | {"group": "gone"}]}))
    assert read_json(path) == [Figure(GROUP, "s", "w", "us", "a", (1.0,))]


@pytest.mark.parametrize(
    "old",
    [
        {"results": []},
        [FIGURE],
        {"figures": [FIGURE | {"median": 1.0}]},
        {"figures": [{"group": GROUP, "rounds": [1.0]}]},
        {"figures": [{"group": GROUP, "median": 1.0}]},
        {"figures": {"pairs": 1.0}},
    ],
)
def test_results_of_another_format_are_ignored_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: object
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(old))
    assert read_json(path) == []
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"{path} is of another version of the benchmarks and is ignored"
