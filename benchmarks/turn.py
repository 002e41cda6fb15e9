"""Where the time of a hand-off goes: its parts, one after the other, and the CPU of both sides."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import pairwise
from statistics import median
from time import monotonic, monotonic_ns
from typing import Any, NamedTuple

from dblock.dialects.postgresql.sender import Sender
from dblock.io.listener import Listener
from tests.servers import OwnServer

from . import peers
from .figures import Effort, Figure, Sheet, Target
from .gauges import cpu
from .loops import MANY
from .peers import Entry
from .site import Site
from .workers import Channel, Worker, crew

GROUP = "turn"

TARGETS: tuple[Target, ...] = ()

#: A hand-off's parts, one after the other. Only dblock's can be told apart.
PARTS = ("release, until it sends", "statement and notification", "acquire, once it is notified")


class Turn(NamedTuple):
    """One hold, in ns: when a notification ended the wait, when the acquire and the release
    returned, and when the release sent its statement. 0 is for what did not happen."""

    notified: int
    had: int
    sent: int


class Worked(NamedTuple):
    """What one process did: its turns, and the seconds of CPU that they took it."""

    turns: list[Turn]
    cpu: float


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """All wait for the same lock and give it back at once, with nothing between."""
    contenders = peers.entries(site, (peers.LEASE, peers.BARE_QUEUE, peers.ADVISORY))
    with crew(effort.many) as workers:
        for number, scenario in ((effort.few, MANY["few"]), (effort.many, MANY["many"])):
            sheet = Sheet(GROUP, scenario)
            for _ in range(effort.loops):
                for entry in contenders:
                    _measure(sheet, workers[:number], entry, effort, site.server("postgresql"))
            yield from sheet.figures()


def _measure(
    sheet: Sheet, workers: Sequence[Worker], entry: Entry, effort: Effort, server: OwnServer
) -> None:
    for worker in workers:
        worker.begin(work, entry)
    _hear(workers)  # they are connected
    before = sum(map(cpu, server.pids))
    _answer(workers, monotonic() + effort.stride + effort.loop)
    _hear(workers)  # they are done, and connected yet
    spent = sum(map(cpu, server.pids)) - before
    _answer(workers, None)
    done: list[Worked] = _hear(workers)
    count = sum(len(one.turns) for one in done)
    sheet.add(entry.name, "CPU of the clients", "us", sum(one.cpu for one in done) / count * 1e6)
    sheet.add(entry.name, "CPU of the server", "us", spent / count * 1e6)
    turns = sorted((turn for one in done for turn in one.turns), key=lambda turn: turn.had)
    sheet.add(
        entry.name, "from hold to hold", "us", _middle(b.had - a.had for a, b in pairwise(turns))
    )
    handed = [(a, b) for a, b in pairwise(turns) if a.sent and b.notified > a.sent]
    parts = (
        (a.sent - a.had for a, _ in handed),
        (b.notified - a.sent for a, b in handed),
        (b.had - b.notified for _, b in handed),
    )
    for part, times in zip(PARTS, parts, strict=True):
        if handed:
            sheet.add(entry.name, part, "us", _middle(times))


def _middle(times: Iterator[int]) -> float:
    return median(list(times) or [0]) / 1e3


def _hear(workers: Sequence[Worker]) -> list[Any]:
    return [worker.hear() for worker in workers]


def _answer(workers: Sequence[Worker], said: object) -> None:
    for worker in workers:
        worker.answer(said)


def work(channel: Channel, entry: Entry) -> Worked:
    """Take and give back until the time that the answer tells."""
    last = {"sent": 0, "notified": 0}
    undo = (
        _note(Sender, "_answer", last, "sent", before=True),
        _note(Listener, "read", last, "notified", before=False),
    )
    client = entry.connect()
    try:
        peers.take(warm := client.lock("warm"))
        warm.release()
        stop = channel.meet()
        turns, used = [], _used()
        while monotonic() < stop:
            lock = client.lock("shared")
            last["notified"] = 0
            peers.take(lock)
            had, last["sent"] = monotonic_ns(), 0
            lock.release()
            turns.append(Turn(last["notified"], had, last["sent"]))
        worked = Worked(turns, _used() - used)
        channel.meet()
        client.close()
        return worked
    finally:
        for one in undo:
            one()


def _used() -> float:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def _note(
    kind: type, method: str, times: dict[str, int], what: str, *, before: bool
) -> Callable[[], None]:
    """Note when a method begins, or when it returns; return a function that undoes this."""
    plain = getattr(kind, method)

    @wraps(plain)
    def noting(*args: Any, **options: Any) -> Any:
        if before:
            times[what] = monotonic_ns()
            return plain(*args, **options)
        returned = plain(*args, **options)
        times[what] = monotonic_ns()
        return returned

    setattr(kind, method, noting)
    return lambda: setattr(kind, method, plain)
