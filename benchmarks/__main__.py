"""The command: ``python -m benchmarks``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from tests.servers import ServerMissing

from . import report, scenarios
from .measure import Effort

RESULTS = Path(__file__).parent / "results"


@click.command()
@click.option("--quick", is_flag=True, help="A look in under a minute; too short for --check.")
@click.option(
    "--databases",
    default=",".join(scenarios.KINDS),
    show_default=True,
    help="Which to measure, with commas.",
)
@click.option("--rounds", type=click.IntRange(1), help="How often to repeat it all.  [default: 15]")
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=RESULTS / "results.json",
    help="Where the figures go.",
)
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=RESULTS / "results.png",
    help="Where the plot goes.",
)
@click.option("--check", is_flag=True, help="Exit with 1 if a target was missed.")
def main(
    quick: bool,
    databases: str,
    rounds: int | None,
    json_path: Path,
    plot_path: Path,
    check: bool,
) -> None:
    """Measure what dblock costs beside the bare drivers, on servers of its own."""
    kinds = [kind.strip() for kind in databases.split(",")]
    if unknown := sorted(set(kinds) - set(scenarios.KINDS)):
        raise click.BadParameter(
            f"no such database: {', '.join(unknown)}; there are {', '.join(scenarios.KINDS)}",
            param_hint="--databases",
        )
    effort = Effort(rounds or (5 if quick else 15), 0.05 if quick else 0.2)
    console, err = Console(), Console(stderr=True)
    if not console.is_terminal:
        console.width = 120
    results: list[scenarios.Result] = []
    missing = False
    for kind in kinds:
        try:
            err.print(f"measuring {kind}")  # no spinner: its thread would be measured too
            with scenarios.database(kind) as url:
                results += scenarios.run(kind, url, effort)
        except ServerMissing as error:
            missing = True
            err.print(str(error).replace("tests skipped", "not measured"))
    report.show(results, console)
    report.write_json(results, json_path)
    err.print(f"figures: {json_path}", highlight=False, soft_wrap=True)
    try:
        report.plot(results, plot_path)
        err.print(f"plot: {plot_path}", highlight=False, soft_wrap=True)
    except ImportError:
        err.print(
            "no plot: matplotlib is not installed (pip install 'dblock[bench]')", markup=False
        )
    missed = [result for result in results if result.met is False]
    if check and (missed or missing):
        sys.exit(1)


if __name__ == "__main__":
    main()
