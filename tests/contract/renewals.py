"""What the keeper sends and hears, and what holders are told, in the hands of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import Danger, LockLost, Locks
from dblock.dialects.query import Query, Result
from dblock.protocol.commands import Command, Renew
from tests.support import SECONDS, lock_row
from tests.worlds.behind import held_up, here

TTL = 1.0  # renewed every 0.3 s, lost after 0.9 s
RENEWER = "dblock renewer"


def moved(engine: Engine, locks: Locks, name: str) -> Callable[[], bool]:
    """Whether the expiry has moved since this was called."""
    before = lock_row(engine, locks, name).expires_at
    return lambda: lock_row(engine, locks, name).expires_at != before


def by_keeper() -> bool:
    return here() == RENEWER


class Renewals:
    """Meddles with what the keeper sends and hears; the holders' own renewals are left alone."""

    def __init__(self, locks: Locks, patch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None
        query = locks._database.dialect.query

        def sent(command: Command[Any]) -> Query[Any]:
            if not isinstance(command, Renew):
                return query(command)
            if by_keeper():
                self.sizes.append(len(command.asked))
                self.before()
            renew = query(command)

            def heard(result: Result) -> dict[str, int | None]:
                if by_keeper():
                    self.after()
                return renew.read(result)

            return renew._replace(read=heard)

        patch.setattr(locks._database.dialect, "query", sent)


class Latch:
    """Where a thread stops, says so, and waits until it may go on."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert held_up(self.open.wait, SECONDS)


@contextmanager
def latch() -> Iterator[Latch]:
    made = Latch()
    try:
        yield made
    finally:
        made.open.set()


class Told:
    """What the callbacks were called with, in order, and by which threads."""

    def __init__(self) -> None:
        self.all: list[Danger | LockLost] = []
        self.threads: set[str] = set()

    def __call__(self, what: Danger | LockLost) -> None:
        self.threads.add(here())
        self.all.append(what)

    @property
    def losses(self) -> list[str]:
        return [what.reason for what in self.all if isinstance(what, LockLost)]

    @property
    def dangers(self) -> list[Danger]:
        return [what for what in self.all if isinstance(what, Danger)]
