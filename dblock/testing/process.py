"""What a process has of the test's database: a keeper, a way there, and who holds what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, scoped_session

from ..borrowed import Borrowed, Root, borrow
from ..database import Database
from ..dialects import DIALECTS, Dialect
from ..holds import FlowHolds, Holdings, LeaseHold
from ..keeper import Keeper
from ..locks import Locks
from ..protocol.steps import Protocol, Query, Reply, Run, RunHeld
from ..runtime import Event, Runtime
from .store import Store
from .wire import Sent, Wire, WiredSQLite

T = TypeVar("T")


class Process:
    """The process that is tested, or another one."""

    def __init__(self, store: Store, name: str | None = None) -> None:
        self.store = store
        self.name = name
        self.wire = Wire()
        self.staff = store.clock.staff()
        self.keeper = StaffedKeeper(self)

    def alone(self, mine: Holdings) -> bool:
        """Whether nobody else of this process has anything that could be waited for."""
        store = self.store
        return not (
            any(hold.flow is not mine and hold.alive for hold in self.keeper.holds())
            or store.written
            or any(root.is_active and root not in mine.borrowed for root in store.rows.values())
        )

    def let_pass(self, seconds: float) -> None:
        """Be told that there is nothing to do but wait."""
        self.store.clock.wait(seconds)

    def end(self) -> None:
        """Hold nothing any more, without a word to anybody."""
        self.staff.dead = True
        for hold in self.keeper.holds():
            hold.ended = True


class StaffedKeeper(Keeper):
    """A keeper that can be asked what it keeps; that of another process tells nobody here."""

    def __init__(self, process: Process) -> None:
        super().__init__(SimulatedRuntime(process), process.staff.employ)
        self._process = process

    def _tell(self, *event: Any) -> None:
        if self._process.name is None:
            super()._tell(*event)

    def holds(self) -> list[LeaseHold]:
        found = (reference() for reference in list(self._kept))
        return [hold for hold in found if hold is not None]


class SimulatedRuntime(Runtime):
    """The test's time for threads, and, before AsyncioRuntime, for tasks.

    Who waits for the other holders that a test has there be, or for a database that it has cut
    off, does not wait: the clock is moved. Who waits for a thread or task of the test's waits.
    """

    def __init__(self, process: Process, flow_holds: FlowHolds | None = None) -> None:
        self._process = process
        self._flow_holds = flow_holds
        self._clock = process.store.clock
        self.now = self._clock.now

    def sleep(self, seconds: float) -> None:
        if self._alone():
            self._process.let_pass(seconds)
        else:
            self._clock.really_wait(lambda: False, super().sleep, seconds)

    def wait(self, event: Event, seconds: float | None) -> bool:
        def pause(seconds: float) -> None:
            super(SimulatedRuntime, self).wait(event, seconds)

        self._clock.really_wait(event.is_set, pause, seconds)
        return event.is_set()

    def _alone(self) -> bool:
        return self._flow_holds is None or self._process.alone(self._flow_holds.mine())


class SimulatedHolds(FlowHolds):
    """What each flow holds; only a row lock in a transaction of its own makes it the one writer.

    The user's transactions are in another database than the locks.
    """

    flow = "thread"

    def __init__(self, usual: FlowHolds) -> None:
        self._usual = usual

    def mine(self) -> Holdings:
        return self._usual.mine()

    def refuse_self_wait(self, name: str, wait: float | None, **options: Any) -> Any:
        writes = self.has_row(None, None)
        return super().refuse_self_wait(name, wait, **{**options, "one_writer": writes})

    def has_row(self, within: object, name: str | None) -> bool:
        if name is not None:
            return super().has_row(within, name)
        return any(hold.alive for hold in self.mine().rows)


class SimulatedDatabase(Database):
    """The test's database as one process sees it, in the place of ``usual`` if that is given."""

    def __init__(
        self,
        process: Process,
        runtime: Runtime,
        flow_holds: FlowHolds,
        usual: Database,
    ) -> None:
        dialect = WiredSQLite(usual.timeouts, process.store, process.wire)
        super().__init__(
            process.store.engine,
            dialect,
            usual.timeouts,
            usual.label,
            lent=False,
            runtime=runtime,
            keeper=lambda: process.keeper,
            flow_holds=flow_holds,
        )
        self.engine = usual.engine
        self._process = process
        self._usual_dialect = usual.dialect

    def owner(self, label: str) -> str:
        return self._process.name or super().owner(label)

    def borrow(self, on: Any) -> Borrowed:
        return StandIn(
            borrow(on, self._dialect_of(on), self.runtime), self._process, self.runtime, self.run
        )

    def _dialect_of(self, on: Any) -> Dialect:
        """Return what speaks to the database of a transaction of the user's, as is usual there."""
        if self.engine is not self._process.store.engine:
            return self._usual_dialect
        found = on() if isinstance(on, scoped_session) else on
        if isinstance(found, Session) and found.is_active:
            found = found.connection()
        spoken = found.dialect if isinstance(found, Connection) else None
        name = getattr(found, "vendor", None) if spoken is None else spoken.name
        for kind in _kinds(spoken is not None and spoken.is_async).values():
            if name in kind.backends:
                return kind(None, "dblock_", self.timeouts)
        return self._usual_dialect


def _kinds(is_async: bool) -> Mapping[str, type[Dialect]]:
    if not is_async:
        return DIALECTS
    from ..aio.dialects import ASYNC_DIALECTS

    return ASYNC_DIALECTS


class StandIn(Borrowed):
    """The user's transaction, wherever that is: what is to be seen or kept in it is so in the
    test's database, for as long as it lasts."""

    def __init__(
        self, real: Borrowed, process: Process, runtime: Runtime, run: Callable[[Any], Reply]
    ) -> None:
        super().__init__(real._dialect, runtime)
        self._real = real
        self._process = process
        self._run = run
        self._proves = False

    @property
    def root(self) -> Root | None:
        # A guard makes the user's transaction no writer here.
        return None if self._proves else self._real.root

    @property
    def driver(self) -> Any:
        return self._real.driver

    def execute(self, query: Query) -> Reply:
        return self._real.execute(query)

    def savepoint(self) -> Any:
        return self._real.savepoint()

    def undo(self, savepoint: Any) -> None:
        self._real.undo(savepoint)

    def release(self, savepoint: Any) -> None:
        self._real.release(savepoint)

    def run(self, step: RunHeld) -> Reply:
        self._real.execute(Query("SELECT 1", {}))  # it begins with its first statement
        query = step.query
        assert isinstance(query, Sent)
        name = query.name
        if query.kind == "guard":
            self._proves = True
            self._process.wire.guard(name)
            return self._sent(query)
        root, store = self.root, self._process.store
        if store.row_of(name) not in (None, root):
            now = self._runtime.now()
            return Reply((), 0, now, now)
        reply = self._sent(query)
        locked = reply.matched if query.kind == "create" else reply.rows
        if locked and root is not None:
            store.rows[name] = root
        return reply

    def _sent(self, query: Query) -> Reply:
        return self._run(_once(Query(*query)))


def _once(query: Query) -> Protocol[Reply]:
    return (yield Run(query))


def stand_in(process: Process, locks: Locks) -> Callable[[], None]:
    """Have the locks of a process be in the test's database; return what ends that.

    Their handles know their database and its runtime. So these two become others, in place.
    """
    database, dialect = locks.database, locks.dialect
    runtime = database.runtime
    if isinstance(database, SimulatedDatabase):
        raise ValueError(f"{locks!r} are in a test's database already")  # noqa: TRY004
    held = {*database.flow_holds.held()}
    if not runtime.lingers:  # else there is a keeper for each loop
        held |= {hold.name for hold in database.keeper._holds(database)}
    if held:
        raise ValueError(
            f"{locks!r} hold {', '.join(map(repr, sorted(held)))}: give that back first"
        )
    usual, counting = _twin(database), _twin(locks)
    counting.database = usual
    holds_of, runtime_of = SimulatedHolds, SimulatedRuntime
    if runtime.lingers:
        from .tasks import SimulatedTaskHolds, SimulatedTaskRuntime

        holds_of, runtime_of = SimulatedTaskHolds, SimulatedTaskRuntime
    flow_holds = holds_of(database.flow_holds)
    simulated = runtime_of(process, flow_holds)
    made = SimulatedDatabase(process, simulated, flow_holds, usual)
    if runtime.lingers:  # what the keeper does is done where the clock is moved, loop or not
        made.kept = SimulatedDatabase(process, SimulatedRuntime(process), flow_holds, usual)
    end = [_become(runtime, simulated), _become(database, made)]
    locks.dialect = made.dialect
    # A counter locks nothing. It is in a table of the user's, and works there as it does.
    vars(locks)["counter"] = counting.counter

    def stop() -> None:
        made.kept.close()
        made.close()
        vars(locks).pop("counter")
        locks.dialect = dialect
        for undo in end:
            undo()

    return stop


def _twin(one: T) -> T:
    """Return another object that has what one has now."""
    made = object.__new__(type(one))
    vars(made).update(vars(one))
    return made


def _become(one: object, other: object) -> Callable[[], None]:
    """Have an object be another, for all who have it; return what ends that."""
    before = one.__class__, one.__dict__

    def undo() -> None:
        one.__class__, one.__dict__ = before

    one.__class__, one.__dict__ = other.__class__, other.__dict__
    return undo
