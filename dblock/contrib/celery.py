"""Celery: one of several beats sends the tasks.

>>> app.conf.beat_scheduler = "dblock.contrib.celery:ElectedScheduler"        # doctest: +SKIP
>>> app.conf.dblock_election = locks.election("celery-beat")                  # doctest: +SKIP
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.beat import PersistentScheduler, Scheduler
from celery.utils.imports import symbol_by_name

from ..errors import DBLockError, LockLost
from ..handles.election import Election, Leadership

_log = logging.getLogger("dblock")

# Seconds for which a beat waits to lead, and then sees whether it is to end; and that it rests if
# the database is away.
WAIT, REST = 1.0, 1.0


class ElectedScheduler(Scheduler):  # type: ignore[misc] # it has no types
    """A scheduler that runs in several beats and works only in the beat that leads.

    ``app.conf.dblock_election`` is the election, by :meth:`dblock.Locks.election`, and
    ``app.conf.dblock_scheduler`` the scheduler that works, Celery's own if there is none. dblock
    creates it for each term, so that it knows which tasks were sent before.
    """

    def __init__(self, app: Any, *args: Any, lazy: bool = False, **options: Any) -> None:
        election = app.conf.get("dblock_election")
        if not isinstance(election, Election):
            raise TypeError(
                "app.conf.dblock_election is an election, as of "
                f'locks.election("celery-beat"), not {type(election).__name__}'
            )
        kind = symbol_by_name(app.conf.get("dblock_scheduler") or PersistentScheduler)
        self._election = election
        self._make: Callable[[], Scheduler] = lambda: kind(app, *args, **options)
        self._standing = election.stand()
        self._term: Leadership | None = None
        self._working: Scheduler | None = None
        super().__init__(app, {}, *args[1:], lazy=True, **options)

    @property
    def info(self) -> str:
        return f"    . election -> {self._election.name}"

    def tick(self, *args: Any, **options: Any) -> float:
        """Send the due tasks, if this beat leads; return the seconds until the next call."""
        if self._term is None or not self._term.held:
            self._end()
            try:
                if self._standing.begin(WAIT) is not None:  # another one leads
                    return 0.0  # it has waited
                term, self._standing = self._standing, self._election.stand()
                self._begin(term)
            except DBLockError as error:
                _log.warning("this beat does not know whether it leads: %s", error)
                return REST
        assert self._working is not None
        return min(float(self._working.tick(*args, **options)), WAIT)

    def _begin(self, term: Leadership) -> None:
        """Work for a term, and send nothing after it."""
        _log.info("this beat leads, with the fence %d", term.fence)
        self._term, self._working = term, self._make()
        send = self._working.apply_async

        def apply_async(*args: Any, **options: Any) -> Any:
            term.check()
            return send(*args, **options)

        self._working.apply_async = apply_async

    def _end(self) -> None:
        """Stop working, and resign."""
        working, self._working = self._working, None
        term, self._term = self._term, None
        try:
            if working is not None:
                working.close()
        finally:
            if term is not None:
                try:
                    term.resign()
                except LockLost as loss:
                    _log.warning("this beat leads no more: %s", loss)
                except DBLockError as error:
                    _log.warning("this beat could not resign: %s", error)

    def should_sync(self) -> bool:
        return self._working is not None and bool(self._working.should_sync())

    def _do_sync(self) -> None:
        if self._working is not None:
            self._working._do_sync()

    def close(self) -> None:
        self._end()
