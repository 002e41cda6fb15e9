"""How late this machine is: what the bounds of a history are measured with."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from .history import Recorder, now

PULSE = 0.1


class Yardstick:
    """A thread that writes down, ten times a second, when it was to wake up and when it had.

    With a database it commits something as well; while that is away the commit is late.
    """

    def __init__(self, recorder: Recorder, url: Callable[[], str] | None = None) -> None:
        self._recorder, self._url = recorder, url
        self._enough = threading.Event()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="yardstick", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._enough.is_set():
            operation = self._recorder.begin("yardstick", due=now() + PULSE)
            self._enough.wait(PULSE)
            if self._url is not None:
                self._commit(self._url)
            operation.tell("ok")
        self._drop()

    def _commit(self, url: Callable[[], str]) -> None:
        while not self._enough.is_set():
            try:
                if self._connection is None:
                    self._connection = create_engine(url(), poolclass=NullPool).connect()
                self._connection.execute(text("UPDATE soak_yardstick SET number = number + 1"))
                self._connection.commit()
            except DBAPIError:
                self._drop()
                self._enough.wait(PULSE)
            else:
                return

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(DBAPIError):
                self._connection.invalidate()
            self._connection.close()
            self._connection = None
