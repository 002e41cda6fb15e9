"""The command: ``python -m tests.soak``."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from tests.servers import OWN, ServerMissing

from . import report
from .checker import check, count
from .history import Tail
from .profiles import PROFILES
from .progress import progress
from .run import Settings, soak

MISSING = 69  # EX_UNAVAILABLE: there is no server to run it on


@click.command()
@click.option("--minutes", type=click.FloatRange(0), default=5.0, show_default=True)
@click.option("--profile", type=click.Choice(list(PROFILES)), default="chaos", show_default=True)
@click.option(
    "--database",
    type=click.Choice([*OWN, "pgbouncer", "sqlite", "mix", "five"]),
    default="postgresql",
)
@click.option("--seed", type=int, help="Of the workers' choices and of the faults.")
@click.option("--unguarded", is_flag=True, help="Write without the guard: must find stale writes.")
@click.option("--workers", type=click.IntRange(2), help="Where not as many as the profile has.")
@click.option("--names", type=click.IntRange(1), help="The same.")
@click.option("--holds", type=click.IntRange(0), default=0, help="And until there were so many.")
@click.option("--ttl", type=click.FloatRange(0.1), help="Seconds; the same.")
@click.option("--keep", is_flag=True, help="Keep the history even if it is clean.")
def main(
    minutes: float,
    profile: str,
    database: str,
    seed: int | None,
    unguarded: bool,
    workers: int | None,
    names: int | None,
    holds: int,
    ttl: float | None,
    keep: bool,
) -> None:
    """Use leases on a server of its own while faults happen, and check what came of it."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    if database not in PROFILES[profile].servers:
        raise click.UsageError(f"the profile {profile} has no {database}")
    if unguarded and not PROFILES[profile].writes:
        raise click.UsageError(f"in the profile {profile} nothing is written")
    asked = {"workers": workers, "names": names, "ttl": ttl}
    given = {name: value for name, value in asked.items() if value is not None}
    settings = Settings.of(profile, minutes * 60, seed, guarded=not unguarded, holds=holds, **given)
    console = Console()
    if not console.is_terminal:
        console.width = 120
    directory = Path(tempfile.mkdtemp(prefix="dblock-soak-"))
    title = f"{profile} on {database}, seed {seed}, {settings.workers} workers"
    title += ", unguarded" * unguarded
    console.print(f"soak: {title}: {minutes:g} minutes", highlight=False)
    try:
        make = PROFILES[profile].servers[database]
        with make() as server, progress(console, settings) as watch:
            history = soak(settings, server, directory, watch)
    except ServerMissing as missing:
        shutil.rmtree(directory)
        console.print(str(missing).replace("tests skipped", "not soaked"))
        sys.exit(MISSING)
    except BaseException:
        console.print(f"history, as far as it goes: {directory}", highlight=False, soft_wrap=True)
        raise
    tail = Tail(directory)
    tail.follow()
    rules = check(history)
    report.show(console, title, count(history), tail.faults, rules, history)
    for rule in rules:
        if rule.violations:
            for line in report.excerpt(rule.violations[0]):
                console.print(line, highlight=False, markup=False, soft_wrap=True)
    fenced = PROFILES[profile].fenced
    good, says = report.verdict(rules, guarded=not unguarded, fenced=fenced)
    console.print(says, style="green" if good else "red")
    if keep or not good:
        console.print(f"history: {directory}", highlight=False, soft_wrap=True)
    else:
        shutil.rmtree(directory)
    sys.exit(not good)


if __name__ == "__main__":
    main()
