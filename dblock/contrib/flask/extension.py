"""The extension. One object serves all applications of a process; each has its own state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

import click
from flask import Flask, Request, appcontext_pushed, current_app, g
from flask.cli import ScriptInfo

from ...cli.embedded import Given, commands
from ...cli.schema import downgrade, upgrade
from ...decorating import check_runnable, wraps
from ...errors import DBLockError, NotHeld
from ...handles.lease import Lease
from ...handles.options import check_keywords
from ...locks import Locks
from ...policy import Timeouts
from ..http import Rules
from .idempotency import decorator

if TYPE_CHECKING:
    from alembic.config import Config

    from ...arguments import Seconds
    from ...handles.options import (
        LeaseKeywords,
        SkipKeywords,
    )
    from ...io.borrowed import Borrowable
    from ...io.target import Target

_log = logging.getLogger("dblock")

NAME = "dblock"
P = ParamSpec("P")
T = TypeVar("T")


def _delegate(
    maker: Callable[Concatenate[Locks, P], T],
) -> Callable[Concatenate[DBLock, P], T]:
    """Return a method of :class:`DBLock` that calls this one of the application's locks.

    It asks the locks for the method, because the tests of a user may have replaced it there.
    """

    @wraps(maker)
    def method(self: DBLock, /, *args: P.args, **kwargs: P.kwargs) -> T:
        made: T = getattr(self.locks, maker.__name__)(*args, **kwargs)
        return made

    return method


class DBLock:
    """The locks of the current application.

    It reads the application's configuration:

    ``DBLOCK_URL``
        a URL or an Engine. Without it dblock uses Flask-SQLAlchemy's engine.
    ``DBLOCK_BIND_KEY``
        which engine of Flask-SQLAlchemy's to use.
    ``DBLOCK_TIMEOUTS``
        a dict with the arguments of :class:`dblock.Timeouts`.
    ``DBLOCK_SCHEMA``, ``DBLOCK_PREFIX``, ``DBLOCK_LABEL``, ``DBLOCK_TRUST_SERVER``
        as the arguments of :class:`dblock.Locks`.

    It has the methods of :class:`dblock.Locks` that make locks. They need an application context,
    so use :meth:`locked` and :meth:`skip` to decorate a function of a module.
    """

    def __init__(self, app: Flask | None = None) -> None:
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Set dblock up for an application.

        The application gets its locks and the commands ``flask dblock ...``. Leases of
        :meth:`acquire` are released at the end of the application context. ``flask db migrate``
        leaves dblock's tables alone.
        """
        if NAME in app.extensions:
            raise RuntimeError("dblock is already set up for this application")
        state = app.extensions[NAME] = State(app)
        app.teardown_appcontext(_release)
        state.meet_migrate(app)
        appcontext_pushed.connect(state.meet_migrate, app)  # it may be set up after this
        app.cli.add_command(_commands())

    @property
    def locks(self) -> Locks:
        """The locks of the current application. dblock makes them when you first ask; no I/O."""
        state: State | None = current_app.extensions.get(NAME)
        if state is None:
            raise RuntimeError(
                "dblock is not set up for this application: call DBLock().init_app(app)"
            )
        return state.locks

    def acquire(self, name: str, **options: Unpack[LeaseKeywords[None]]) -> Lease:
        """Acquire a lease for the rest of the request, or of the application context.

        The ``options`` are as for :meth:`lease`. Raises NotAcquired if the name is not free within
        ``wait``. If the lease is lost by the end, dblock logs that.
        """
        lease = self.locks.lease(name, **options)
        lease.__enter__()
        if NAME not in g:
            setattr(g, NAME, [])
        getattr(g, NAME).append(lease)
        return lease

    lease = _delegate(Locks.lease)
    shared = _delegate(Locks.shared)
    attach = _delegate(Locks.attach)
    detached = _delegate(Locks.detached)
    detached_semaphore = _delegate(Locks.detached_semaphore)
    detached_from = _delegate(Locks.detached_from)
    row = _delegate(Locks.row)
    election = _delegate(Locks.election)
    semaphore = _delegate(Locks.semaphore)
    rate = _delegate(Locks.rate)
    cron = _delegate(Locks.cron)
    all = _delegate(Locks.all)
    counter = _delegate(Locks.counter)
    once = _delegate(Locks.once)

    def locked(
        self,
        name: str,
        **options: Unpack[LeaseKeywords[None]],
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorate a function: it holds a lease while it runs, in whichever application it runs.

        The arguments are the same as for :meth:`lease`. Only ``reentrant=True`` is refused, because
        each call makes a lease of its own.
        """
        _check(name, options)

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            @wraps(check_runnable(function))
            def locked(*args: P.args, **kwargs: P.kwargs) -> T:
                with self.lease(name, **options):
                    return function(*args, **kwargs)

            return locked

        return decorate

    def skip(
        self, name: str, **options: Unpack[SkipKeywords[None]]
    ) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
        """Decorate a function as :meth:`locked` does. But while another holder has the lease, a
        call does nothing and returns None: see :meth:`dblock.Locks.skip`."""
        check_keywords("skip", options)
        _check(name, options)

        def decorate(function: Callable[P, T]) -> Callable[P, T | None]:
            @wraps(check_runnable(function))
            def skipping(*args: P.args, **kwargs: P.kwargs) -> T | None:
                return self.locks.skip(name, **options)(function)(*args, **kwargs)

            return skipping

        return decorate

    def idempotent(
        self,
        session: Borrowable,
        *,
        caller: Callable[[Request], object],
        fingerprint: Callable[[Request], object] | None = None,
        methods: Iterable[str] = ("POST", "PATCH"),
        required: bool = True,
        keep: Seconds = 24 * 3600.0,
        wait: Seconds | None = 0.0,
    ) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
        """Decorate a view: it runs once for each Idempotency-Key, in the session's transaction.

        The view's changes, the key and the response commit together: the decorator commits, or
        rolls back, and the view does neither. A repeated request gets the recorded response, and
        the view does not run.

        ``caller`` returns whose request it is, for example the key of the user who is logged in;
        callers share no keys. ``fingerprint`` returns a value that a repeated request must repeat,
        instead of its body. Requests with other ``methods`` run as usual. If ``required`` is false,
        a request without a key runs in a transaction too. The record stays for ``keep`` seconds.
        While another request with the key runs, this one waits for up to ``wait`` seconds.
        """
        rules = Rules(
            caller,
            fingerprint=fingerprint,
            methods=methods,
            required=required,
            keep=keep,
            wait=wait,
        )
        return decorator(lambda: self.locks, session, rules)


@dataclass
class State:
    """The extension's state in one application."""

    app: Flask
    _locks: Locks | None = field(default=None)
    #: Flask-Migrate's configuration, once it is set up, and its filter at that time.
    _migrate: Any = field(default=None)
    _filter: Any = field(default=None)

    def meet_migrate(self, sender: Flask, **_: object) -> None:
        """Have Flask-Migrate, if it is set up, call :meth:`keep_tables` before its commands."""
        config = self.app.extensions.get("migrate")
        if config is None or config is self._migrate:
            return
        self._migrate = config
        self._filter = config.configure_args.get("include_name")
        config.migrate.configure(self.keep_tables)

    def keep_tables(self, alembic: Config) -> Config:
        """Keep autogenerate from dropping dblock's tables, which the models do not have.

        Alembic takes one ``include_name``. So this does nothing if env.py gives one itself.
        """
        if current_app.extensions[NAME] is not self:  # several applications can have one Migrate
            return alembic
        from ...schema import leave_ours  # late: it imports Alembic

        env = Path(alembic.get_main_option("script_location") or "", "env.py")
        chosen = self._filter
        if not (env.is_file() and "include_name" in env.read_text()):
            known = self._migrate.metadata.tables
            chosen = leave_ours(chosen, known=known, **self.place)
        arguments = self._migrate.configure_args
        arguments.pop("include_name", None)
        if chosen is not None:
            arguments["include_name"] = chosen
        return alembic

    @property
    def place(self) -> dict[str, Any]:
        """The place of dblock's tables."""
        config = self.app.config
        return {
            "schema": config.get("DBLOCK_SCHEMA"),
            "prefix": config.get("DBLOCK_PREFIX", "dblock_"),
        }

    @property
    def locks(self) -> Locks:
        if self._locks is None:
            config = self.app.config
            self._locks = Locks(
                self._target(),
                timeouts=Timeouts(**config.get("DBLOCK_TIMEOUTS", {})),
                **self.place,
                label=config.get("DBLOCK_LABEL", self.app.name),
                trust_server=config.get("DBLOCK_TRUST_SERVER", False),
            )
            self._locks._database.dialect.upgraded_by = "flask dblock upgrade"
        return self._locks

    def _target(self) -> Target:
        given: Target | None = self.app.config.get("DBLOCK_URL")
        if isinstance(given, str) and not given.strip():
            raise ValueError(
                "DBLOCK_URL is set but empty: set it to the database's URL, or leave it out for "
                "Flask-SQLAlchemy's engine"
            )
        if given is not None:
            return given
        alchemy: Any = self.app.extensions.get("sqlalchemy")
        if alchemy is None:
            raise RuntimeError(
                "this application has no database for dblock: set DBLOCK_URL, or set up "
                "Flask-SQLAlchemy"
            )
        with self.app.app_context():
            key, engines = self.app.config.get("DBLOCK_BIND_KEY"), alchemy.engines
            if key not in engines:
                raise ValueError(
                    f"DBLOCK_BIND_KEY is {key!r}, but Flask-SQLAlchemy has engines for "
                    f"{', '.join(map(repr, engines))}"
                )
            engine: Target = engines[key]
        return engine


@cache
def _nowhere() -> Locks:
    """Return locks of no application. They make leases, without I/O, which are never acquired."""
    return Locks("sqlite:///nowhere")


def _check(name: str, options: LeaseKeywords[None] | SkipKeywords[None]) -> None:
    """Check the arguments of a decorator, which has no application yet."""
    if _nowhere().lease(name, **options).reentrant:
        raise ValueError(
            "a decorator of DBLock is not reentrant, because each call makes a lease of its own: "
            "leave reentrant=True out, and let a function that calls itself call an undecorated one"
        )


def _release(error: BaseException | None = None) -> None:
    """Release the leases of this application context, the last one first."""
    for lease in reversed(g.pop(NAME, [])):
        try:
            lease.release()
        except NotHeld:
            pass  # released before
        except DBLockError as failure:
            _log.error("releasing %r at the end of its context failed: %s", lease.name, failure)


def _commands() -> click.Group:
    def place(ctx: click.Context) -> Given:
        state: State = ctx.ensure_object(ScriptInfo).load_app().extensions[NAME]
        return Given(lambda: state.locks)

    return commands(place, upgrade, downgrade)
