"""A simulated session of PostgreSQL: what it has asked the server for beside the tables."""

from __future__ import annotations

import math
from types import SimpleNamespace

from psycopg.pq import TransactionStatus

from tests.simulation.stores.postgresql_backend import Backend, Cause


class Requests:
    """Virtual settings, and notifications that wait for the commit; undone as a transaction is."""

    def __init__(self) -> None:
        self.notifications: list[tuple[str, str]] = []
        self._settings: dict[str, str] = {}
        self._local: dict[str, str] = {}
        self._before = self._local, self.notifications

    def begin(self) -> None:
        """A statement begins."""
        self._before = dict(self._local), list(self.notifications)

    def set(self, name: str, value: str, *, local: bool) -> None:
        (self._local if local else self._settings)[name] = value

    def get(self, name: str) -> str | None:
        return self._local.get(name, self._settings.get(name))

    def seconds(self, name: str) -> float:
        """Return a timeout; infinity where there is none."""
        milliseconds = int(self.get(name) or 0)
        return milliseconds / 1000 if milliseconds else math.inf

    def undo(self) -> None:
        """The statement has failed."""
        self._local, self.notifications = self._before

    def end(self) -> list[tuple[str, str]]:
        """The transaction ends; return the notifications."""
        notifications, self.notifications = self.notifications, []
        self._local = {}
        return notifications


class Driver:
    """One session, as long as it lasts: what its client has for a driver's connection."""

    def __init__(self, number: int, backend: Backend, pid: int) -> None:
        self.number = number
        self.backend = backend
        self.requests = Requests()
        #: What it listens to.
        self.channel: str | None = None
        #: When its statement began; what that waits for, since when.
        self.began = 0.0
        self.wait: tuple[Cause, float] | None = None
        #: How it is about a transaction, as its client knows.
        self.transaction = backend.transaction
        # What the dialect and SQLAlchemy touch when it is made.
        self.pgconn = SimpleNamespace(notify_handler=None)
        self.info = SimpleNamespace(
            server_version=backend.connection.info.server_version,
            backend_pid=pid,
            encoding="utf-8",
            host="/simulated",
            get_parameters=lambda: {"connect_timeout": "3"},
        )

    @property
    def in_transaction(self) -> bool:
        return self.transaction != TransactionStatus.IDLE

    def fileno(self) -> int:
        return id(self)

    def add_notice_handler(self, handler: object) -> None:
        """None comes: no standby is waited for."""
