"""How far a soak is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .history import Tail
from .run import Settings, Watch

LINES = 10  # where there is no terminal


@contextlib.contextmanager
def progress(console: Console, settings: Settings) -> Iterator[Watch]:
    """Yield what a soak calls to tell how far it is."""

    def done(over: float, tail: Tail) -> float:
        """Which share of it is done: of its seconds, or of its holds where those take longer."""
        holds = tail.counts["acquire", "ok"]
        asked = [(over, settings.seconds), (holds, settings.holds)]
        return min((min(have / want, 1.0) for have, want in asked if want), default=1.0)

    if console.is_terminal:
        with _bar(console) as bar:
            task = bar.add_task("", total=1.0)
            yield lambda over, tail: bar.update(
                task, completed=done(over, tail), description=_counted(tail)
            )
        return
    told = 0

    def tell(over: float, tail: Tail) -> None:
        nonlocal told
        if (lines := int(done(over, tail) * LINES)) > told:
            told = lines
            console.print(f"{over:4.0f} s: {_counted(tail)}", highlight=False)

    yield tell


def _bar(console: Console) -> Progress:
    columns = BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    return Progress(*columns, console=console, transient=True)


def _counted(tail: Tail) -> str:
    return (
        f"{tail.counts['acquire', 'ok']} holds, {tail.counts['write', 'ok']} writes, "
        f"{tail.faults.total()} faults"
    )
