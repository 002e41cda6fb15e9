"""Another process of a test: it holds a name, or waits for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ..handles.lease import Lease
from ..handles.makers import Classes
from ..holding.holds import CallerHolds
from ..holding.worker import start_quietly
from ..locks import Locks
from .process import Process
from .standing_in import stand_in
from .store import Store

#: Its owner label, in `show()` and in NotAcquired.
OWNER = "another process"


class Another:
    """Another process that holds a name or waits for it; made by :class:`Faults`.

    It renews its lease until you call :meth:`release` or :meth:`die`, or until the end of ``with``.
    """

    def __init__(self, store: Store, name: str, ttl: float) -> None:
        self.name = name
        self._process = _Process(store)
        locks = Locks(store.engine)
        locks._classes = Classes(lease=_Lease)
        self._stop = stand_in(self._process, locks)
        self._lease = locks.lease(name, ttl=ttl)
        self._lease._options = self._lease._options._replace(client=OWNER)

    def __repr__(self) -> str:
        return f"<Another {'with' if self.held else 'without'} {self.name!r}>"

    @property
    def held(self) -> bool:
        """Whether the process holds the name."""
        return self._lease.held

    @property
    def fence(self) -> int:
        """The fence of its hold. Raises NotHeld if it does not hold the name."""
        return self._lease.fence

    def release(self) -> None:
        """Release the name. Raises NotHeld or LockLost if it does not hold the name."""
        self._lease.release()

    def die(self) -> None:
        """End the process. It releases nothing, so its lease expires."""
        self._process.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()

    # --- for Faults --------------------------------------------------------------------------

    def _take(self) -> bool:
        """Get the name if it is free."""
        return self._lease.acquire(blocking=False)

    def _leave(self) -> None:
        """Release the name if the process holds it."""
        if self.held:
            self.release()

    def _wait(self) -> None:
        """Begin to wait for the name."""
        self._process.begin(self._lease.acquire)

    def _close(self) -> None:
        self._process.end()
        self._stop()


class _Lease(Lease):
    """A lease of another process. Its events are no events of this process."""

    def _tell(self, *event: Any, **how: Any) -> None:
        pass


class _Process(Process):
    """Waits in a thread of its own.

    That thread runs only when the clock has come to the end of its sleep. The thread that moves the
    clock waits meanwhile.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store, OWNER)
        self._resting = threading.Event()
        self._go_on = threading.Event()
        self._waiting: threading.Thread | None = None

    def alone(self, mine: CallerHolds) -> bool:
        return True  # it never moves the clock itself

    def let_pass(self, seconds: float) -> None:
        if threading.current_thread() is not self._waiting:
            super().let_pass(seconds)
            return
        self.store.clock.at(self.store.clock.now() + seconds, self._resume)
        self._resting.set()
        self._go_on.wait()
        self._go_on.clear()
        if self.staff.dead:
            raise _Died

    def begin(self, acquire: Callable[[], bool]) -> None:
        def wait() -> None:
            try:
                with contextlib.suppress(_Died):
                    acquire()
            finally:
                self._resting.set()

        self._waiting = threading.Thread(target=wait, name="dblock another", daemon=True)
        start_quietly(self._waiting)
        self._resting.wait()

    def _resume(self) -> None:
        if self._waiting is not None and self._waiting.is_alive():
            self._resting.clear()
            self._go_on.set()
            self._resting.wait()

    def end(self) -> None:
        super().end()
        self._resume()


class _Died(BaseException):
    """Ends the thread of the process."""
