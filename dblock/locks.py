"""Locks: one database as a lock server."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary

from .arguments import check_instance
from .handles.makers import Makers
from .handles.operators import Operators
from .holding.callers import CallerRegistry, ThreadHolds
from .holding.database import Database
from .holding.keeper import Keeper, keeper_of_process
from .io.runtime import Runtime
from .io.target import address, locate
from .policy import RetryPolicy, Timeouts

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine
    from sqlalchemy.orm import InstrumentedAttribute
    from sqlalchemy.schema import Column

    from .counters.counter import Counter
    from .counters.numbers import Number
    from .counters.table import Types
    from .io.target import Target


class Locks(Operators, Makers):
    """The locks in one database.

    ``target``
        a database URL or a SQLAlchemy Engine. dblock makes its connections the way your engine
        does, but outside its pool, so neither starves the other. It never disposes of your engine.
        Its connections use psycopg 3, PyMySQL or sqlite3. If your URL or engine has another driver,
        dblock takes the address, the password and TLS from it.
    ``timeouts``
        how long each layer may take; see :class:`Timeouts`.
    ``retry``
        how dblock repeats refused tries; see :class:`RetryPolicy`.
    ``schema``, ``prefix``
        where dblock's tables are: ``{schema}.{prefix}lock`` and so on.
    ``label``
        a text that tells people what this process is, in ``dblock list`` for example.
    ``trust_server``
        use a server that only speaks PostgreSQL's or MySQL's protocol (CockroachDB, TiDB, ...).
        Without it dblock refuses such a server. dblock promises nothing there: a name may have two
        holders, fences may not grow, waiters may not be notified, a failover may go unnoticed.

    Creating one does no I/O. Every call may raise Unavailable (the database cannot be reached),
    SchemaMissing (``dblock upgrade`` was not run) and Unsupported (the role lacks rights).
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
        limits = Timeouts() if timeouts is None else timeouts
        policy = RetryPolicy() if retry is None else retry
        check_instance("timeouts", limits, Timeouts)
        check_instance("retry", policy, RetryPolicy)
        source, dialect = self._resolve(
            target,
            timeouts=limits,
            schema=schema,
            prefix=prefix,
            trust_server=trust_server,
        )
        lent = source is target
        runtime = self._runtime()
        #: The column types of the user's tables that have counters.
        self._types: Types = WeakKeyDictionary()
        self.retry = policy.drawing(runtime.random)
        #: Shared by the strategies; not part of the public surface.
        self._database = Database(
            source,
            dialect,
            label,
            lent=lent,
            runtime=runtime,
            keeper=self._keeper,
            callers=self._callers(),
        )

    # Overridden by the asyncio subclass.
    _resolve = staticmethod(locate)
    _runtime: Callable[[], Runtime] = Runtime
    _keeper: Callable[[], Keeper] = staticmethod(keeper_of_process)
    _callers: Callable[[], CallerRegistry] = ThreadHolds

    def __repr__(self) -> str:
        return f"<Locks in {address(self.engine.url)}>"

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine whose way of connecting dblock uses for its own connections."""
        return self._database.engine

    @property
    def timeouts(self) -> Timeouts:
        """How long each layer may take."""
        return self._database.dialect.timeouts

    def counter(
        self,
        column: Column[Any] | InstrumentedAttribute[Any],
        *,
        key: Column[Any] | InstrumentedAttribute[Any],
        version: Column[Any] | InstrumentedAttribute[Any] | None = None,
        floor: Number | None = 0,
        stripes: int | None = None,
        retry: RetryPolicy | None = None,
    ) -> Counter:
        """Return a counter over a column of one of your tables, in the row that ``key`` finds.

        ``version`` is a column that every change raises by one. ``floor`` is the least value that
        ``take`` leaves; None means that there is no such limit.

        With ``stripes=N`` dblock spreads the number over N rows, so that N transactions can change
        it at the same time. The table's primary key is then (``key``, an integer column), and the
        number is the sum of the rows. See :meth:`Counter.spread`.
        """
        from .counters.columns import Columns
        from .counters.counter import Counter  # this imports the ORM, which takes long

        return Counter(
            self._database,
            self._types,
            Columns.of(column, key, version),
            stripes=stripes,
            floor=floor,
            retry=self._policy(retry),
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has connections, which you cannot send to another process: make Locks "
            "there, from the URL"
        )

    def close(self) -> None:
        """Close the idle connections. dblock stops renewing held leases: they expire."""
        self._database.keeper().stop(self._database.kept, "its Locks were closed")
        self._database.close()

    def __enter__(self) -> Locks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
