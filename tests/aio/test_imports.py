"""What `import dblock` brings along, and that both worlds have the same surface."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table

import dblock
from dblock import aio

SYNC, ASYNC = dblock.Locks("sqlite:////nowhere"), aio.AsyncLocks("sqlite:////nowhere")
ID, N = Column("id", Integer), Column("n", Integer)
Table("product", MetaData(), ID, N)


async def _job() -> None: ...


PAIRS: tuple[tuple[Any, Any], ...] = (
    (SYNC, ASYNC),
    (SYNC.lease("a"), ASYNC.lease("a")),
    (SYNC.row("a"), ASYNC.row("a")),
    (SYNC.cron("a")(print), ASYNC.cron("a")(_job)),
    (SYNC.all(SYNC.lease("a")), ASYNC.all(ASYNC.lease("a"))),
    (SYNC.semaphore("a", 2), ASYNC.semaphore("a", 2)),
    (SYNC.shared("a"), ASYNC.shared("a")),
    (SYNC.counter(N, key=ID), ASYNC.counter(N, key=ID)),
)

# The names that only one of both has: they tell how a lock was made, or that it is for tasks.
ONLY_SYNC = {"locks", "reentrant", "timeouts", "retry", "engine", "strategy"}
ONLY_ASYNC = {"sync", "run", "here", "for_another_loop"}
# Arguments that only tasks have.
NEW = {
    "AsyncLocks": {"keeper"},
    **{
        f"AsyncLocks.{kind}": {"cancel_on_loss"}
        for kind in ("attach", "cron", "election", "lease", "semaphore", "shared", "skip")
    },
}


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: type(pair[0]).__name__)
def test_the_names_are_the_same(pair: tuple[Any, Any]) -> None:
    sync, asynchronous = pair
    assert public(sync) - ONLY_SYNC == public(asynchronous) - ONLY_ASYNC


def signatures() -> list[tuple[str, Any, Any]]:
    """Of what users call; handles are made by Locks."""
    found: list[tuple[str, Any, Any]] = [("AsyncLocks", dblock.Locks, aio.AsyncLocks)]
    for sync, asynchronous in PAIRS:
        kind, other = type(sync), type(asynchronous)
        for name in sorted(public(kind) & public(other)):
            if inspect.isroutine(getattr(kind, name)):
                method = getattr(other, name)
                found.append((f"{other.__name__}.{name}", getattr(kind, name), method))
            else:
                assert isinstance(getattr(other, name), property), f"{name} is called in one"
    return found


@pytest.mark.parametrize("pair", signatures(), ids=lambda pair: pair[0])
def test_the_signatures_are_the_same(pair: tuple[str, Any, Any]) -> None:
    name, sync, asynchronous = pair
    one = inspect.signature(sync).parameters
    other = inspect.signature(asynchronous).parameters
    assert set(other) - set(one) == NEW.get(name, set())
    kept = [parameter for key, parameter in other.items() if key in one]
    shape = [(parameter.name, parameter.kind, parameter.default) for parameter in kept]
    assert shape == [(one[key].name, one[key].kind, one[key].default) for key in one]


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_import_dblock_needs_nothing_of_asyncio() -> None:
    """SQLAlchemy itself imports greenlet where it is there, so it is not there here."""
    assert (
        run("""
        import sys
        for missing in ("greenlet", "asyncmy", "aiosqlite", "psycopg", "pymysql"):
            sys.modules[missing] = None
        import dblock, dblock.__main__, dblock.schema
        print([name for name in sys.modules if name.startswith("dblock.aio")])
    """)
        == "[]"
    )


def test_what_is_missing_is_named() -> None:
    assert (
        run("""
        import sys
        sys.modules["greenlet"] = None
        try:
            import dblock.aio
        except ImportError as error:
            print(error)
    """)
        == "dblock.aio needs greenlet: pip install 'dblock[asyncio]'"
    )
    for driver, extra, url in (
        ("aiosqlite", "sqlite-async", "sqlite+aiosqlite:////nowhere"),
        ("asyncmy", "mysql-async", "mysql+asyncmy://host/db"),
        ("psycopg", "postgresql", "postgresql+psycopg://host/db"),
    ):
        said = run(f"""
            import sys
            sys.modules[{driver!r}] = None
            from dblock.aio import AsyncLocks
            try:
                AsyncLocks({url!r})
            except Exception as error:
                print(error)
        """)
        assert f"dblock[{extra}]" in said


def test_a_sync_engine_is_refused() -> None:
    from sqlalchemy import create_engine

    for engine in (create_engine("sqlite://"), create_engine("mysql+pymysql://host/db")):
        with pytest.raises(dblock.Unsupported, match="not an asyncio one: give it to dblock"):
            aio.AsyncLocks(engine)  # type: ignore[arg-type]
