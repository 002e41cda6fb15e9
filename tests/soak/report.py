"""What a soak tells: its figures, its rules, and the piece of the history that shows a fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .checker import BROKEN_WITHOUT, check
from .facts import Facts, History, Rule, Violation
from .hand_offs import HandOff, hand_offs
from .liveness import BOUND
from .times import Times

OUTCOMES = ("ok", "failed", "unknown", "error")
SHOWN = 40  # events of one violation
WIDTH = 300  # characters of one event's details


def verdict(
    rules: Sequence[Rule], *, guarded: bool = True, fenced: bool = True
) -> tuple[bool, str]:
    """Whether the soak is as it has to be, and one line that says so."""
    broken = {rule.name: len(rule.violations) for rule in rules if rule.violations}
    kept = {"guard": guarded, "fence": fenced}
    lacking = {what: BROKEN_WITHOUT[what] for what, there in kept.items() if not there}
    if unexpected := broken.keys() - set().union(*lacking.values()):
        return False, f"violated: {', '.join(sorted(unexpected))}"
    for what, rules_of_it in lacking.items():
        first = rules_of_it[0]
        if first not in broken:
            return False, f"{first!r} is not violated, though there is no {what}"
    if lacking:
        seen = ", ".join(f"{name} {number} times" for name, number in broken.items())
        return True, f"violated, as it has to be without the {' and the '.join(lacking)}: {seen}"
    return True, "clean: no rule is violated"


def demand(history: History, directory: Path, *, fenced: bool = True) -> None:
    """Fail, with the events that show why, unless the history is as it has to be."""
    rules = check(history)
    good, says = verdict(rules, fenced=fenced)
    shown = [line for rule in rules for one in rule.violations for line in excerpt(one)]
    assert good, "\n".join([says, f"history: {directory}", *shown])


def show(
    console: Console,
    title: str,
    counts: Counter[tuple[str, str]],
    faults: Counter[str],
    rules: Sequence[Rule],
    history: History,
) -> None:
    """Print the tables."""
    tables = _operations(title, counts), _faults(faults), _hand_offs(history), _rules(rules)
    console.print(*tables, sep="\n")


def _operations(title: str, counts: Counter[tuple[str, str]]) -> Table:
    table = Table(title=f"{title}: operations", title_justify="left")
    table.add_column("operation")
    for step in OUTCOMES:
        table.add_column(step, justify="right")
    for kind in sorted({kind for kind, _ in counts} - {"fault", "worker", "yardstick"}):
        table.add_row(kind, *(str(counts[kind, step]) for step in OUTCOMES))
    return table


def _faults(faults: Counter[str]) -> Table:
    table = Table(title="faults", title_justify="left")
    table.add_column("fault")
    table.add_column("injected", justify="right")
    for fault, number in sorted(faults.items()):
        table.add_row(fault, str(number))
    table.add_section()
    table.add_row("all", str(faults.total()))
    return table


def _hand_offs(history: History) -> Table:
    """How long the names were free that somebody waited for, in milliseconds."""
    times = Times(Facts(history))
    kinds: dict[str, list[HandOff]] = {"nobody killed": [], "beside a death": [], "to the dead": []}
    for one in hand_offs(times, sees_deaths=history.sees_deaths):
        kind = "to the dead" if one.lost else "beside a death" if one.deaths else "nobody killed"
        kinds[kind].append(one)
    table = Table(title="hand-offs: how long the name was free, in ms", title_justify="left")
    table.add_column("with")
    over = f"over {BOUND} s"
    for heading in ("number", "50 %", "99 %", "most", over, "the machine was late then"):
        table.add_column(heading, justify="right")
    for kind, found in kinds.items():
        free = sorted(one.free for one in found) or [0.0]
        shares = (free[int(share * (len(free) - 1))] for share in (0.5, 0.99, 1))
        long = [one for one in found if one.free > BOUND]
        late = ", ".join(f"{1000 * times.lateness(one.span):.0f}" for one in long[:SHOWN])
        figures = (f"{1000 * each:.1f}" for each in shares)
        table.add_row(kind, str(len(found)), *figures, str(len(long)), late)
    return table


def _rules(rules: Sequence[Rule]) -> Table:
    table = Table(title="rules", title_justify="left")
    for heading in ("rule", "says"):
        table.add_column(heading)
    for heading in ("checked", "violated"):
        table.add_column(heading, justify="right")
    for rule in rules:
        number = len(rule.violations)
        style = "red" if number else "green"
        table.add_row(rule.name, rule.says, str(rule.checked), f"[{style}]{number}[/]")
    return table


def excerpt(violation: Violation) -> list[str]:
    """The events that show a violation, one line each, the times from the first one on."""
    distinct = {id(event): event for event in violation.events}.values()
    events = sorted(distinct, key=lambda event: event.at)
    lines = [violation.what]
    for event in events[:SHOWN]:
        what = f"{event.process:14} {event.op:5} {event.kind:8} {event.step:8}"
        detail = json.dumps(event.detail)[:WIDTH]
        lines.append(f"  {event.at - events[0].at:9.4f}  {what} {detail}")
    if len(events) > SHOWN:
        lines.append(f"  and {len(events) - SHOWN} more")
    return lines + [f"  in the log: {row}" for row in violation.rows]
