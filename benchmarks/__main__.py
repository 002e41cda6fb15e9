"""The command: ``python -m benchmarks``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from tests.servers import ServerMissing

from . import page, report
from .figures import FULL, QUICK, SMOKE, Figure
from .groups import GROUPS
from .site import Site
from .workers import WorkerFailed

RESULTS = Path(__file__).parent / "results"


@click.command()
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help=f"Measure this group, and no other; can be repeated. One of: {', '.join(GROUPS)}.",
)
@click.option("--quick", is_flag=True, help="A look in some minutes; too short for --check.")
@click.option("--no-peers", is_flag=True, help="Only dblock and the bare drivers.")
@click.option("--smoke", is_flag=True, hidden=True, help="Shows that it runs.")
@click.option("--check", is_flag=True, help="Exit with 1 if a target was missed.")
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=RESULTS,
    help="Where figures and plots go. Groups that are not measured keep theirs.",
)
@click.option("--publish", is_flag=True, help="Write the README's tables; measure nothing.")
def main(
    only: tuple[str, ...],
    quick: bool,
    no_peers: bool,
    smoke: bool,
    check: bool,
    results: Path,
    publish: bool,
) -> None:
    """Measure dblock beside other locks and beside bare drivers, on servers of its own."""
    if unknown := sorted(set(only) - set(GROUPS)):
        raise click.BadParameter(
            f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}",
            param_hint="--only",
        )
    path = results / "results.json"
    if publish:
        if not (known := report.read_json(path)):
            raise click.ClickException(f"there are no figures in {path}")
        page.publish(known)
        return
    effort = SMOKE if smoke else QUICK if quick else FULL
    console, err = Console(), Console(stderr=True)
    if not console.is_terminal:
        console.width = 160
    figures: list[Figure] = []
    with Site(peers=not no_peers) as site:
        for name in only or GROUPS:
            err.print(f"measuring {name}")  # no spinner: its thread would be measured too
            site.clear()
            try:
                figures += GROUPS[name](site, effort)
            except (ServerMissing, WorkerFailed) as error:
                site.miss(f"{name} was not measured: {error}")
            report.write_json(report.merge(report.read_json(path), figures), site.missing, path)
        missing = site.missing
    for table in report.tables(figures):
        console.print(table)
    console.print(report.target_table(figures))
    for line in missing:
        err.print(line, markup=False, highlight=False)
    err.print(f"figures: {path}", highlight=False, soft_wrap=True)
    try:
        for plot in () if smoke else report.plot(figures, results):
            err.print(f"plot: {plot}", highlight=False, soft_wrap=True)
    except ImportError:
        err.print(
            "no plots: matplotlib is not installed (pip install -e . --group bench)", markup=False
        )
    if check and (missing or not all(v and v.met for _, v in report.verdicts(figures))):
        sys.exit(1)


if __name__ == "__main__":
    main()
