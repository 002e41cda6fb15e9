"""The figures as tables, as JSON and as plots."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.box import MARKDOWN, SIMPLE_HEAD, Box
from rich.table import Table

from .figures import Figure, Target, Verdict, scenarios
from .groups import GROUPS, TARGETS
from .peers import CONTENDERS

COLUMNS = 3


def verdicts(figures: Sequence[Figure]) -> list[tuple[Target, Verdict | None]]:
    """Judge the targets of the groups that were measured."""
    measured = {figure.group for figure in figures}
    return [(target, target.judge(figures)) for target in TARGETS if target.group in measured]


def tables(figures: Sequence[Figure], *, markdown: bool = False) -> Iterable[Table]:
    """Yield a table for each scenario: a row for each contender, a column for each quantity."""
    box = MARKDOWN if markdown else SIMPLE_HEAD
    for (group, scenario), found in scenarios(figures).items():
        whats = list(dict.fromkeys((figure.what, figure.unit) for figure in found))
        title = None if markdown else f"{group}: {scenario}"
        table = Table(f"{group}: {scenario}" if markdown else "", title=title, **_style(box))
        for what, unit in whats:
            table.add_column(f"{what}, {unit}" if unit else what, justify="right")
        cells = {(figure.who, figure.what): _cell(figure) for figure in found}
        for who in dict.fromkeys(figure.who for figure in found):
            table.add_row(who, *(cells.get((who, what), "") for what, _ in whats))
        yield table


def target_table(figures: Sequence[Figure], *, markdown: bool = False) -> Table:
    """Return what was promised and what was found."""
    box = MARKDOWN if markdown else SIMPLE_HEAD
    table = Table("scenario", "figure", "of", "against", title=None, **_style(box))
    for heading in ("target", "found"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for target, verdict in verdicts(figures):
        times = " x" if target.against else ""
        sign = ">=" if target.at_least else "<="
        if verdict is None:
            found, state = "", "not measured"
        else:
            spread = "" if verdict.low == verdict.high else f" {_range(verdict.low, verdict.high)}"
            found, state = f"{_number(verdict.found)}{spread}", "met" if verdict.met else "missed"
        table.add_row(
            f"{target.group}: {target.scenario}",
            target.what,
            target.who,
            target.against,
            f"{sign} {_number(target.bound)}{times}",
            found,
            state,
        )
    return table


def _style(box: Box) -> dict[str, Any]:
    return {"box": box, "title_justify": "left"}


def _cell(figure: Figure) -> str:
    low, high = min(figure.rounds), max(figure.rounds)
    spread = "" if low == high else f" {_range(low, high)}"
    return f"{_number(figure.median)}{spread}"


def _range(low: float, high: float) -> str:
    return f"({_number(low)}-{_number(high)})"


def _number(value: float) -> str:
    """Three digits that count, no more decimals than two."""
    if math.isinf(value):
        return "infinite"  # the ratio to a figure of 0
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def read_json(path: Path) -> list[Figure]:
    """Return the figures of earlier runs; none, and say so, if they are not as they are today."""
    if not path.exists():
        return []
    try:
        lines = json.loads(path.read_text())["figures"]
        figures = [Figure(**{**line, "rounds": tuple(line["rounds"])}) for line in lines]
    except (ValueError, KeyError, TypeError):
        print(f"{path} is of another version of the benchmarks and is ignored", file=sys.stderr)
        return []
    return [figure for figure in figures if figure.group in GROUPS]


def merge(old: Sequence[Figure], new: Sequence[Figure]) -> list[Figure]:
    """Return the old figures with the groups replaced that were measured anew."""
    anew = {figure.group for figure in new}
    kept = [figure for figure in old if figure.group not in anew]
    order = list(GROUPS)
    return sorted([*kept, *new], key=lambda figure: order.index(figure.group))


def write_json(figures: Sequence[Figure], missing: Sequence[str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    judged = [
        asdict(target) | {"found": verdict and verdict.found, "met": verdict and verdict.met}
        for target, verdict in verdicts(figures)
    ]
    run = {
        "machine": {"system": platform.platform(), "cpus": len(os.sched_getaffinity(0))},
        "python": sys.version.split()[0],
        "packages": _versions(),
        "missing": list(missing),
        "targets": judged,
        "figures": [asdict(figure) for figure in figures],
    }
    path.write_text(json.dumps(run, indent=1) + "\n")


def _versions() -> dict[str, str]:
    packages = {"dblock", "SQLAlchemy", "psycopg", "PyMySQL"}
    found = {}
    for package in sorted(packages | {c.package for c in CONTENDERS.values() if c.package}):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def plot(figures: Sequence[Figure], directory: Path) -> list[Path]:
    """Draw a picture for each group, its range as a line. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure as Picture

    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for group in dict.fromkeys(figure.group for figure in figures):
        panels: dict[tuple[str, str, str], list[Figure]] = {}
        for figure in figures:
            if figure.group == group:
                key = figure.scenario, figure.what, figure.unit
                panels.setdefault(key, []).append(figure)
        rows = -(-len(panels) // COLUMNS)
        most = max(map(len, panels.values()))
        picture = Picture(figsize=(6 * COLUMNS, rows * (1 + 0.25 * most)), layout="constrained")
        axes = picture.subplots(rows, COLUMNS, squeeze=False).flat
        for axis, ((scenario, what, unit), found) in zip(axes, panels.items(), strict=False):
            draw_bars(axis, found[::-1])
            axis.set_title(f"{scenario}: {what}" + (f", {unit}" if unit else ""), fontsize=9)
        for axis in list(axes)[len(panels) :]:
            axis.set_visible(False)
        path = directory / f"{group.replace(' ', '-')}.png"
        picture.savefig(path, dpi=100)
        paths.append(path)
    return paths


def draw_bars(axis: Any, found: Sequence[Figure]) -> None:
    """Draw a bar for each contender, dblock's in another colour."""
    middles = [figure.median for figure in found]
    spread = [
        [figure.median - min(figure.rounds) for figure in found],
        [max(figure.rounds) - figure.median for figure in found],
    ]
    ours = [figure.who.startswith("dblock") for figure in found]
    colours = ["tab:blue" if mine else "tab:grey" for mine in ours]
    names = [figure.who for figure in found]
    axis.barh(names, middles, xerr=spread, color=colours, ecolor="black", capsize=2)
    axis.tick_params(labelsize=8)
    positive = [middle for middle in middles if middle > 0]
    if positive and max(positive) > 30 * min(positive):
        axis.set_xscale("log")
