"""Locks: one database as a lock server."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary

from .arguments import (
    Seconds,
    check_callback,
    check_fair,
    check_label,
    check_max_hold,
    check_max_renewals,
    check_name,
    check_renew,
    check_ttl,
    seconds,
)
from .cron import Cron, Job
from .database import Database
from .errors import LockLost
from .holding.callers import CallerRegistry, ThreadHolds
from .holding.keeper import Keeper, keeper_of_process
from .io.runtime import Runtime
from .lease import Lease, LeaseOptions
from .lock_state import LockState
from .multi import MultiLock
from .policy import RetryPolicy
from .protocol import inspect, job_runs, release
from .protocol.schedule import Danger, Plan
from .protocol.state import Pruned, RunState
from .row import RowLock
from .target import locate
from .timeouts import Timeouts

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine
    from sqlalchemy.orm import InstrumentedAttribute
    from sqlalchemy.schema import Column

    from .counter import Counter
    from .counter_table import Types
    from .io.borrowed import Borrowable
    from .target import Target


class Locks:
    """The locks in one database.

    ``target``
        a database URL or a SQLAlchemy Engine. A lent engine is never disposed of; connections are
        made the way it makes them, but outside its pool, so neither starves the other.
    ``timeouts``
        what each layer may take; see :class:`Timeouts`.
    ``retry``
        how refused tries are repeated; see :class:`RetryPolicy`.
    ``schema``, ``prefix``
        where dblock's tables are: ``{schema}.{prefix}lock`` and so on.
    ``label``
        what this process is, for the people who read ``dblock list``.
    ``trust_server``
        use a server that only speaks PostgreSQL's or MySQL's protocol (CockroachDB, TiDB, ...),
        which is refused otherwise. Nothing is promised there: not that one holds a name, nor that
        fences grow, a waiter is called, or a failover is noticed.

    Making one does no I/O. Every call may raise Unavailable (the database is away), SchemaMissing
    (``dblock upgrade`` was not run) and Unsupported (the role lacks rights).
    """

    def __init__(
        self,
        target: Target,
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        schema: str | None = None,
        prefix: str = "dblock_",
        label: str | None = None,
        trust_server: bool = False,
    ) -> None:
        source, self.dialect = self._resolve(
            target,
            timeouts=timeouts if timeouts is not None else Timeouts(),
            schema=schema,
            prefix=prefix,
            trust_server=trust_server,
        )
        lent = source is target
        runtime = self._runtime()
        #: Of tables of the user's that counters count in.
        self._types: Types = WeakKeyDictionary()
        self.retry = (retry if retry is not None else RetryPolicy()).drawing(runtime.random)
        #: What the strategies share; not part of the public surface.
        self.database = Database(
            source,
            self.dialect,
            label,
            lent=lent,
            runtime=runtime,
            keeper=self._keeper,
            callers=self._callers(),
        )

    # What is another's for tasks.
    _resolve = staticmethod(locate)
    _runtime: Callable[[], Runtime] = Runtime
    _keeper: Callable[[], Keeper] = staticmethod(keeper_of_process)
    _callers: Callable[[], CallerRegistry] = ThreadHolds

    #: What :meth:`lease` and :meth:`row` make, for subclasses.
    lease_class: type[Lease] = Lease
    row_class: type[RowLock] = RowLock

    def __repr__(self) -> str:
        return f"<Locks in {self.engine.url!r}>"

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine as whose connections dblock's own are made."""
        return self.database.engine

    @property
    def timeouts(self) -> Timeouts:
        """What each layer may take."""
        return self.dialect.timeouts

    # --- the strategies ----------------------------------------------------------------------

    def lease(
        self,
        name: str,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        *,
        reentrant: bool = False,
        fair: bool = False,
        retry: RetryPolicy | None = None,
        label: str | None = None,
        renew: bool = True,
        max_renewals: int | None = None,
        max_hold: Seconds | None = None,
        on_danger: Callable[[Danger], None] | None = None,
        on_lost: Callable[[LockLost], None] | None = None,
    ) -> Lease:
        """Return a lease on ``name``: held until released, and ``ttl`` seconds after a crash.

        A short TTL does, since it is renewed while it is held; of one beyond a day is warned, for
        the holder's death and the database's failover cost others as long.

        ``wait`` is how long ``with`` and :meth:`Lease.acquire` wait: None for ever, 0 not at all.
        ``reentrant`` lets the holding thread take it again, without a round trip, and no other
        thread release it.

        Who waits on PostgreSQL is called, in the order of arrival; on MariaDB one looks and the
        others wait behind it in the server; on SQLite, and behind a pooler, waiters look, after
        random times. Nobody is left behind. ``fair`` keeps the order strictly, everywhere, for a
        longer way from one to the next. A free name is kept for whoever is the first for 0.4 s, so
        that one that died keeps nobody waiting.

        It is renewed every third of the TTL, unless ``renew=False``: at most ``max_renewals``
        times, and never past ``max_hold`` seconds after it was acquired. Then it runs out.

        ``on_danger`` is called with a :class:`Danger` when two thirds of the TTL have passed
        without a renewal, while there is still time to stop; ``on_lost`` with the LockLost when it
        is lost. They run one after the other in a thread of dblock's, so they had better not wait;
        ``on_lost`` runs in the user's own thread when a call of that found it out. What they
        raise is logged.
        """
        options = LeaseOptions(
            check_name(name),
            _plan(check_ttl(ttl), renew, max_renewals, max_hold),
            self._policy(retry),
            wait,
            reentrant,
            check_fair(fair),
            check_label(label or ""),
            check_callback("on_danger", on_danger),
            check_callback("on_lost", on_lost),
        )
        return self.lease_class(self.database, options)

    def row(
        self,
        name: str,
        wait: Seconds | None = None,
        *,
        on: Borrowable | None = None,
        retry: RetryPolicy | None = None,
    ) -> RowLock:
        """Return a row lock on ``name``: in the transaction of ``on``, else in one of its own."""
        return self.row_class(self.database, name, wait, on, retry=self._policy(retry))

    def all(self, *locks: Lease | RowLock, wait: Seconds | None = None) -> MultiLock:
        """Return the given locks as one: sorted, all or nothing, under one deadline."""
        return MultiLock(locks, wait, self.database.runtime)

    def cron(
        self,
        name: str,
        ttl: Seconds = 30.0,
        wait: Seconds | None = 0.0,
        *,
        at_least: Seconds = 0.0,
        at_most: Seconds | None = None,
        once_per: str | None = None,
        retry: RetryPolicy | None = None,
        label: str | None = None,
        on_danger: Callable[[Danger], None] | None = None,
        on_lost: Callable[[LockLost], None] | None = None,
    ) -> Cron:
        """Return a decorator for a job that several processes start and one of them runs.

        The decorated function runs under a lease on ``name``; see :class:`CronJob`.

        ``at_least`` keeps the name for so many seconds from the run's start, also when it was
        faster or its process died: a host whose clock is late does not run it again. After
        ``at_most`` seconds the lease is lost. ``once_per`` names the slot of a run, in which it is
        to succeed once: any text, or ``"minute"``, ``"hour"``, ``"day"``, ``"week"``,
        ``"month"``, by the database's clock and in UTC. A run that failed, or whose process died,
        leaves its slot open.

        How each run ended is on record: :meth:`last_run`.
        """
        lease = self.lease(
            name,
            ttl,
            wait,
            retry=retry,
            label=label,
            max_hold=at_most,
            on_danger=on_danger,
            on_lost=on_lost,
        )
        return Cron(
            Job(
                self.database,
                lease,
                at_least=at_least,
                at_most=at_most,
                once_per=once_per,
                label=label,
            )
        )

    def counter(
        self,
        column: Column[Any] | InstrumentedAttribute[Any],
        *,
        key: Column[Any] | InstrumentedAttribute[Any],
        version: Column[Any] | InstrumentedAttribute[Any] | None = None,
        floor: Any = 0,
        stripes: int | None = None,
        retry: RetryPolicy | None = None,
    ) -> Counter:
        """Return a counter over a column of a table of yours, in the row that ``key`` finds.

        ``version`` is a column that every change raises by one; ``floor`` the least value that
        ``take`` leaves, None for none. With ``stripes`` the number is spread over so many rows,
        which so many transactions change at once: the table's primary key is (``key``, an integer
        column), and the number is the sum. See :meth:`Counter.spread`.
        """
        from .counter import Counter  # and with it the ORM, which takes long

        return Counter(
            self.database,
            self._types,
            column,
            key=key,
            version=version,
            stripes=stripes,
            floor=floor,
            retry=self._policy(retry),
        )

    def _policy(self, retry: RetryPolicy | None) -> RetryPolicy:
        return self.retry if retry is None else retry.drawing(self.database.runtime.random)

    # --- looking and letting go --------------------------------------------------------------

    def list(self) -> list[LockState]:
        """Return the names with a lease, expired and not yet taken over included, by name; and
        those that somebody has waited for for a moment, whose holder may be a row lock."""
        return self.database.run(inspect.look_at_all(self.dialect, self.database.runtime.now()))

    def show(self, name: str) -> LockState:
        """Return what the lock table says of a name, and who has waited for it for a moment.

        A row lock is not seen there.
        """
        check_name(name)
        return self.database.run(inspect.show(self.dialect, name, 0.0))

    def release(self, name: str, *, force: bool) -> bool:
        """Free a name whoever holds it; False when nobody did. ``force=True`` says you mean it.

        The holder learns of it with its next renewal, or when it releases or guards. Its fence is
        never given out again, so what it writes afterwards can be told from the next holder's.
        """
        check_name(name)
        if force is not True:
            raise ValueError(
                "Locks.release takes a lock from whoever holds it: say force=True. "
                "Your own lease is released with lease.release()"
            )

        return self.database.run(
            release.force(self.dialect, name, self.timeouts.query, self.database.runtime.now())
        )

    def last_run(self, name: str) -> RunState | None:
        """Return the run of a job that began last: see :meth:`cron` and ``dblock run``."""
        check_name(name)
        return self.database.run(job_runs.last(self.dialect, name, self.database.runtime.now()))

    def prune(self, older_than: Seconds) -> Pruned:
        """Delete the idempotency keys and the records of runs that are older, in seconds.

        A key or a slot that is gone counts as new. A name's fence stays for ever, and so does the
        record of its last run.
        """
        age = seconds("older_than", older_than)
        return self.database.run(
            job_runs.prune(self.dialect, age, self.timeouts.socket, self.database.runtime.now())
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has connections, which cannot be sent to another process: make Locks there, "
            "from the URL"
        )

    # --- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Close the idle connections. Leases that are held are renewed no more: they run out."""
        self.database.keeper.stop(self.database.kept, "its Locks were closed")
        self.database.close()

    def __enter__(self) -> Locks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@lru_cache(maxsize=64, typed=True)
def _plan(ttl: float, renew: bool, max_renewals: int | None, max_hold: Seconds | None) -> Plan:
    """Return a plan, the same for most leases. Its TTL has been checked."""
    return Plan(ttl, check_renew(renew), check_max_renewals(max_renewals), check_max_hold(max_hold))
