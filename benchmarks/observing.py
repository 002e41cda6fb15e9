"""How soon observers hear of what a leader proclaims, beside the bare notification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from queue import Queue
from threading import Thread
from time import monotonic

from dblock import Locks

from . import raw
from .figures import Effort, Figure, Sheet, Target
from .site import Site

GROUP, SCENARIO = "observed", "a value proclaimed, postgresql"
DBLOCK, NOTIFY = "dblock election", "raw INSERT + NOTIFY"
SECONDS = 60.0  # far more than it takes

TARGETS = (
    Target(GROUP, SCENARIO, "p99", DBLOCK, 50.0),
    Target(GROUP, SCENARIO, "p50", DBLOCK, 4.0, NOTIFY),
)


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """Latency counts from before the change is sent until another thread has the new value."""
    sheet = Sheet(GROUP, SCENARIO)
    for _, url in site.urls(("postgresql",)):
        for _ in range(effort.rounds):
            for who, measure in ((DBLOCK, proclaimed), (NOTIFY, notified)):
                taken = sorted(measure(url, effort.turn))
                sheet.add(who, "p50", "ms", taken[len(taken) // 2] * 1e3)
                sheet.add(who, "p99", "ms", taken[len(taken) * 99 // 100] * 1e3)
    yield from sheet.figures()


def _loop(
    seconds: float, change: Callable[[int], object], heard: Queue[int], number: int = 0
) -> list[float]:
    """Change something again and again, to the next number; return how long it took to be heard
    of."""
    taken: list[float] = []
    end = monotonic() + seconds
    while monotonic() < end or not taken:
        number += 1
        start = monotonic()
        change(number)
        while heard.get(timeout=SECONDS) != number:
            pass
        taken.append(monotonic() - start)
    return taken


def proclaimed(url: str, seconds: float) -> list[float]:
    heard: Queue[int] = Queue()
    with Locks(url) as locks, Locks(url) as others:

        def observe() -> None:
            for leader in others.election("observed").observe():
                value = 0 if leader is None else leader.value or 0
                heard.put(value)
                if value < 0:
                    return

        with locks.election("observed").campaign() as term:
            observer = Thread(target=observe, daemon=True)
            observer.start()
            heard.get(timeout=SECONDS)
            begun = len(_loop(seconds / 10, term.proclaim, heard))  # it listens by now
            taken = _loop(seconds, term.proclaim, heard, begun)
            term.proclaim(-1)
            observer.join(SECONDS)
    return taken


def notified(url: str, seconds: float) -> list[float]:
    heard: Queue[int] = Queue()
    with (
        closing(raw.connect(url, autocommit=True)) as changing,
        closing(raw.connect(url, autocommit=True)) as listening,
    ):
        changing.execute("CREATE TABLE IF NOT EXISTS told (id int PRIMARY KEY, value int)")
        listening.execute("LISTEN told")

        def listen() -> None:
            for call in listening.notifies():
                heard.put(int(call.payload))
                if int(call.payload) < 0:
                    return

        listener = Thread(target=listen, daemon=True)
        listener.start()

        def change(number: int) -> None:
            changing.execute(
                "WITH made AS (INSERT INTO told VALUES (1, %s) ON CONFLICT (id) DO UPDATE "
                "SET value = excluded.value RETURNING value) "
                "SELECT pg_notify('told', value::text) FROM made",
                (number,),
            )

        taken = _loop(seconds, change, heard)
        change(-1)
        listener.join(SECONDS)
    return taken
