"""Bad input: told in words that help, and before any I/O where it can be known."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url
from tenacity import stop_after_attempt

from dblock import Locks, NotHeld, Timeouts, Unsupported
from dblock.aio import AsyncLocks

WRONG_NAMES: list[tuple[Any, type[Exception], str]] = [
    ("", ValueError, "cannot be empty"),
    ("x" * 256, ValueError, "at most 255 characters, this one has 256.* a hash of it"),
    ("é" * 256, ValueError, "at most 255 characters"),
    ("a\0b", ValueError, "cannot contain the NUL character"),
    (b"report", TypeError, "is a str, not bytes: b'report'; decode it first"),
    (42, TypeError, "is a str, not int: 42"),
    (None, TypeError, "is a str, not NoneType"),
    ("a\ud800", ValueError, "encodable as UTF-8"),
]

WRONG_TTLS: list[tuple[Any, type[Exception], str]] = [
    (0, ValueError, r"at least 0\.1 seconds: 0"),
    (0.05, ValueError, r"at least 0\.1 seconds"),
    (-1, ValueError, "cannot be negative: -1"),
    (timedelta(seconds=-1), ValueError, "cannot be negative"),
    (float("nan"), ValueError, "cannot be NaN"),
    (float("inf"), ValueError, "finite: a lease without an end would outlive a dead holder"),
    (1e9, OverflowError, "at most 366 days"),
    (10**400, OverflowError, "too large"),
    ("30", TypeError, "number of seconds or a timedelta, not str: '30'"),
    (True, TypeError, "not bool"),
    (None, TypeError, "not NoneType"),
]

WRONG_WAITS: list[tuple[Any, type[Exception], str]] = [
    (-1, ValueError, "cannot be negative: -1"),
    (float("nan"), ValueError, "cannot be NaN"),
    (float("inf"), ValueError, "To wait for ever, give None"),
    (float("-inf"), ValueError, "negative"),
    (1e300, OverflowError, "To wait for ever, give None"),
    (10**400, OverflowError, "too large"),
    ("5", TypeError, "number of seconds or a timedelta, not str: '5'"),
    (False, TypeError, "not bool"),
]

WRONG_TIMEOUTS: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    ((False, 1), ValueError, "can't specify a timeout for a non-blocking call"),
    ((False, 0), ValueError, "can't specify a timeout for a non-blocking call"),
    ((True, -0.5), ValueError, "-1 or not negative"),
    ((True, float("nan")), ValueError, "NaN"),
    ((True, float("inf")), OverflowError, "at most"),
    ((True, 1e300), OverflowError, "at most"),
    ((True, "1"), TypeError, "number of seconds, not str"),
    ((True, True), TypeError, "not bool"),
]


class Listener:
    """A port at which a database would be, and whether anybody came there."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]

    def visited(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._socket.accept()[0].close()
            return True
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    assert not made.visited(), "a database was contacted"
    made.close()


@pytest.fixture(params=["postgresql", "mariadb", "mysql", "sqlite"])
def locks(request: pytest.FixtureRequest, listener: Listener, tmp_path: Path) -> Iterator[Locks]:
    """Locks that must not do any I/O."""
    file = tmp_path / "none.db"
    url = f"sqlite:///{file}"
    if request.param != "sqlite":
        url = f"{request.param}://somebody@127.0.0.1:{listener.port}/app"
    with Locks(url) as made:
        yield made
    assert not file.exists()


def test_the_listener_notices(tmp_path: Path) -> None:
    listener = Listener()
    assert not listener.visited()
    socket.create_connection(("127.0.0.1", listener.port)).close()
    assert listener.visited()
    listener.close()


def test_names(locks: Locks) -> None:
    for name, error, message in WRONG_NAMES:
        uses: list[Callable[[Any], object]] = [
            locks.lease,
            locks.row,
            locks.show,
            lambda name: locks.release(name, force=True),
        ]
        for use in uses:
            with pytest.raises(error, match=message):
                use(name)


#: The text of a detached hold.
DETACHED = f"{'0' * 32}.1.report"

UNKNOWN = [
    ("lease", "tll", ()),
    ("shared", "tll", ()),
    ("skip", "wait", ()),
    ("attach", "fair", ()),
    ("semaphore", "reentrant", (3,)),
    ("election", "renew", ()),
    ("cron", "max_hold", ()),
]


@pytest.mark.parametrize("made", [Locks, AsyncLocks])
@pytest.mark.parametrize(("maker", "option", "more"), UNKNOWN, ids=[one[0] for one in UNKNOWN])
def test_options_that_a_maker_does_not_take(
    made: Callable[..., Any], maker: str, option: str, more: tuple[object, ...]
) -> None:
    driver = "+aiosqlite" if made is AsyncLocks else ""
    locks = made(f"sqlite{driver}:////nowhere/file")
    with pytest.raises(
        TypeError,
        match=rf"^{maker}\(\) has no option '{option}'; of a lease's options it takes .*label.*ttl",
    ):
        getattr(locks, maker)(DETACHED if maker == "attach" else "report", *more, **{option: 1})


@pytest.mark.parametrize("value", ["false", None, 0])
@pytest.mark.parametrize("option", ["reentrant", "fair", "renew"])
def test_flags_are_true_or_false(locks: Locks, option: str, value: object) -> None:
    """A text such as "false" would count as true."""
    with pytest.raises(TypeError, match=rf"^{option} is True or False, not {value!r}"):
        locks.lease("report", **{option: value})  # type: ignore[arg-type]


def test_retry_and_timeouts_of_another_type(locks: Locks) -> None:
    calls: list[Callable[[Any], object]] = [
        lambda retry: locks.lease("report", retry=retry),
        lambda retry: locks.row("report", retry=retry),
        lambda retry: locks.semaphore("report", 2, retry=retry),
        lambda retry: Locks("sqlite:////nowhere/file", retry=retry),
        lambda retry: AsyncLocks("sqlite+aiosqlite:////nowhere/file", retry=retry),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"^retry is a dblock\.RetryPolicy, not int: 3$"):
            call(3)
    for made in (Locks, AsyncLocks):
        with pytest.raises(TypeError, match=r"^timeouts is a dblock\.Timeouts, not int: 3$"):
            made("sqlite+aiosqlite:////nowhere/file", timeouts=3)  # type: ignore[arg-type]


WRONG_LIMITS: list[tuple[str, Any, type[Exception], str]] = [
    ("renew", [], TypeError, "renew is True or False"),
    ("renew_every", [], TypeError, "number of seconds or a timedelta, not list"),
    ("renew_every", True, TypeError, "number of seconds or a timedelta, not bool"),
    ("renew_every", 0.04, ValueError, "at least 0.05 s, and at most half of the TTL of 30 s"),
    ("renew_every", 15.1, ValueError, "at most half of the TTL"),
    ("renew_every", float("nan"), ValueError, "cannot be NaN"),
    ("renew_every", 10**400, OverflowError, "too large"),
    ("max_renewals", [], TypeError, "max_renewals is an int, not list"),
    ("max_hold", {}, TypeError, "number of seconds or a timedelta, not dict"),
]


def test_limits(locks: Locks) -> None:
    for option, given, error, message in WRONG_LIMITS:
        with pytest.raises(error, match=message) as told:
            locks.lease("report", **{option: given})
        assert not isinstance(told.value.__context__, TypeError)  # no error of the cache
    with pytest.raises(TypeError, match=r"retry is a dblock\.RetryPolicy"):
        locks.row("report", retry=stop_after_attempt(3))  # type: ignore[arg-type]


def test_ttls(locks: Locks) -> None:
    for ttl, error, message in WRONG_TTLS:
        with pytest.raises(error, match=message):
            locks.lease("report", ttl=ttl)
    lease = locks.lease("report")
    for ttl, error, message in WRONG_TTLS:
        if ttl is not None:  # which means the lease's own
            with pytest.raises(error, match=message):
                lease.renew(ttl)


def test_a_ttl_beyond_a_day_is_warned_of(locks: Locks) -> None:
    """Wherever it is given, and where the caller gave it."""
    long, lease = timedelta(days=1, seconds=1), locks.lease("report", ttl=timedelta(days=1))
    beside = AsyncLocks("sqlite+aiosqlite:////no/such/directory/locks.db")
    ways: list[Callable[[], object]] = [
        lambda: locks.lease("report", ttl=long),
        lambda: locks.cron("report", ttl=long),
        lambda: locks.cron("report", at_least=long),
        lambda: beside.lease("report", ttl=long),
        lambda: beside.cron("report", ttl=long),
        lambda: lease.renew(long),
        lambda: lease.release(after=long),
    ]
    for way in ways:
        told = pytest.warns(UserWarning, match="longer than a day")
        with told, contextlib.suppress(NotHeld):
            way()
        assert {warning.filename for warning in told} == {__file__}
    locks.cron("report", at_most=long)  # which nobody waits for
    with pytest.warns(UserWarning, match="longer than a day"):
        exec('locks.lease("report", ttl=long)', {"locks": locks, "long": long})


def test_waits(locks: Locks) -> None:
    for wait, error, message in WRONG_WAITS:
        with pytest.raises(error, match=message):
            locks.lease("report", wait=wait)
        with pytest.raises(error, match=message):
            locks.row("report", wait=wait)
        with pytest.raises(error, match=message):
            locks.all(locks.lease("report"), wait=wait)


def test_timeouts(locks: Locks) -> None:
    for args, error, message in WRONG_TIMEOUTS:
        for lock in (locks.lease("x"), locks.row("x"), locks.all(locks.lease("x"))):
            with pytest.raises(error, match=message):
                lock.acquire(*args)


def test_release_without_force(locks: Locks) -> None:
    with pytest.raises(ValueError, match=r"confirm with force=True.*lease\.release\(\)"):
        locks.release("report", force=False)
    with pytest.raises(ValueError, match="at least 1"):
        locks.release("report", force=True, fence=0)


def test_layers_of_timeouts() -> None:
    with pytest.raises(ValueError, match=r"query \(10\) must be shorter than Timeouts.socket"):
        Timeouts(query=10)
    for layer in ("connect", "query", "socket"):
        with pytest.raises(ValueError, match=f"Timeouts.{layer} must be above 0"):
            Timeouts(**{layer: 0})
        with pytest.raises(TypeError, match=f"Timeouts.{layer} is a number of seconds"):
            Timeouts(**{layer: "1"})  # type: ignore[arg-type]


# Databases


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("oracle://app@{place}/app", r"does not know the database 'oracle'.*dblock\[postgresql\]"),
        ("mssql+pyodbc://app@{place}/app", "does not know the database 'mssql'.*sqlite"),
        (
            "postgresql+pg8000://app@{place}/app",
            r"not know the driver pg8000, but psycopg,.*asyncpg: use postgresql\+psycopg",
        ),
        ("mysql+cymysql://app@{place}/app", r"driver cymysql.*dblock\[mysql\]"),
        ("sqlite+pysqlcipher:///x.db", "not know the driver pysqlcipher"),
        ("sqlite://", "in memory is seen by one connection only.*sqlite:////path/to/file"),
        ("sqlite:///:memory:", "in memory"),
    ],
)
def test_urls_of_what_does_not_work(listener: Listener, url: str, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        Locks(url.format(place=f"127.0.0.1:{listener.port}"))


@pytest.mark.parametrize("url", ["", "garbage", "/var/lib/app.db", "postgresql", "://"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match="not a database URL; one looks like postgresql://"):
        Locks(url)


def test_a_url_with_a_password_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="not a database URL") as caught:
        Locks("app:s3cret@db/app")
    assert "s3cret" not in str(caught.value)
    with Locks("postgresql://app:s3cret@db/app") as locks:
        assert "s3cret" not in repr(locks)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("postgresql://app@{place}/app", "psycopg", "postgresql"),
        ("postgres://app@{place}/app", "psycopg", "postgresql"),
        ("mariadb://app@{place}/app", "pymysql", "mariadb"),
        ("mysql+pymysql://app@{place}/app", "pymysql", "mysql"),
    ],
)
def test_a_driver_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, listener: Listener, url: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unsupported, match=rf"not installed.*pip install 'dblock\[{extra}\]'"):
        Locks(url.format(place=f"127.0.0.1:{listener.port}"))


def test_a_lent_engine_with_another_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = create_engine("sqlite://")
    with pytest.raises(Unsupported, match="in memory"):
        Locks(engine)
    monkeypatch.setattr(engine.dialect, "driver", "pysqlcipher")
    with pytest.raises(Unsupported, match="not know the driver pysqlcipher"):
        Locks(engine)
    engine.dispose()


def test_what_is_no_database(tmp_path: Path) -> None:
    for target in (None, 42, tmp_path, b"sqlite:///x.db", Locks(f"sqlite:///{tmp_path}/x.db")):
        with pytest.raises(TypeError, match="given as a URL or an SQLAlchemy Engine, not"):
            Locks(target)  # type: ignore[arg-type]


def test_an_async_engine(listener: Listener) -> None:
    """The real one where its greenlet is installed, else one that looks like it."""
    engine: Any
    try:
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(f"postgresql+psycopg://app@127.0.0.1:{listener.port}/app")
    except ImportError:
        engine = type("AsyncEngine", (), {})()
    with pytest.raises(TypeError, match=r"not AsyncEngine; for asyncio .*AsyncLocks"):
        Locks(engine)


def test_a_url_object(listener: Listener) -> None:
    url = make_url(f"postgresql://app@127.0.0.1:{listener.port}/app")
    with Locks(url) as locks:
        assert locks.engine.url.drivername == "postgresql+psycopg"


@pytest.mark.parametrize("place", ["a b", "1x", "x-y", "", "x" * 42, "x;drop", 'x"', "é"])
def test_schemas_and_prefixes(tmp_path: Path, place: str) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    for option in ("schema", "prefix"):
        with pytest.raises(ValueError, match=f"{option} has letters, digits and underscores"):
            Locks(url, **{option: place})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=f"{option} is a str, not int"):
            Locks(url, **{option: 1})  # type: ignore[arg-type]
