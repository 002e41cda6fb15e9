"""The results as a table, as JSON and as a plot."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .measure import TOTAL
from .scenarios import TARGET, Result

_MET = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}


def show(results: Sequence[Result], console: Console) -> None:
    """Print a table for each database."""
    for database in dict.fromkeys(result.database for result in results):
        table = Table(title=database, title_justify="left")
        for heading in ("scenario", "step", "against"):
            table.add_column(heading)
        for heading in ("raw us", "ours us", "ratio", "[low-high]", "target"):
            table.add_column(heading.replace("[", "\\["), justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        before = ""
        for result in results:
            if result.database != database:
                continue
            if before != result.scenario:
                table.add_section()
            table.add_row(
                "" if before == result.scenario else result.scenario,
                result.step,
                result.yardstick,
                f"{result.raw:.0f}",
                f"{result.ours:.0f}",
                f"{result.ratio.median:.2f}",
                f"\\[{result.ratio.low:.2f}-{result.ratio.high:.2f}]",
                "" if result.target is None else f"{result.target:.2f}",
                _MET[result.met],
            )
            before = result.scenario
        console.print(table)


def write_json(results: Sequence[Result], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [asdict(result) | {"met": result.met} for result in results]
    run = {"python": platform.python_version(), "unit": "us", "results": lines}
    path.write_text(json.dumps(run, indent=1) + "\n")


def plot(results: Sequence[Result], path: Path) -> None:
    """Draw each ratio with its range over the rounds. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    totals = [result for result in results if result.step == TOTAL]
    databases = list(dict.fromkeys(result.database for result in totals))
    figure = Figure(figsize=(8, 1 + 0.35 * len(totals)), layout="constrained")
    heights = [sum(result.database == database for result in totals) for database in databases]
    axes = figure.subplots(
        len(databases), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, database in zip(axes[:, 0], databases, strict=True):
        mine = [result for result in totals if result.database == database][::-1]
        middles = [result.ratio.median for result in mine]
        spread = [
            [result.ratio.median - result.ratio.low for result in mine],
            [result.ratio.high - result.ratio.median for result in mine],
        ]
        colours = [{True: "tab:green", False: "tab:red", None: "tab:grey"}[r.met] for r in mine]
        names = [f"{result.scenario} / {result.yardstick}" for result in mine]
        axis.barh(names, middles, xerr=spread, color=colours, ecolor="black", capsize=2)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.axvline(TARGET, color="black", linewidth=0.8, linestyle="--")
        axis.set_title(database, loc="left")
    axes[-1, 0].set_xlabel(f"dblock's time / the yardstick's; the dashed line is {TARGET}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
