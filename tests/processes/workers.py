"""What the other processes of these tests do; imported by them, so only what they need."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, text
from sqlalchemy.engine import Connection, Engine

from dblock import Conflict, DeadlockDetected, Locks, NotEnough, Timeouts
from tests.patience import SECONDS as SECONDS


def context() -> ForkServerContext:
    """Processes that are forked from one that has this module imported and no thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


class Process:
    """A function in a process of its own, and messages from it."""

    def __init__(self, function: Callable[..., None], *args: object) -> None:
        self._reader, writer = context().Pipe(duplex=False)
        self._go_on = context().Event()
        self._process: ForkServerProcess = context().Process(
            target=_run, args=(function, writer, self._go_on, *args), daemon=True
        )
        self._process.start()
        writer.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def message(self) -> Any:
        """The next message. What the function raises is raised here."""
        ready = multiprocessing.connection.wait(
            [self._reader, self._process.sentinel], timeout=SECONDS
        )
        assert ready, "the process has nothing to say"
        assert self._reader in ready, f"the process ended with {self._process.exitcode}"
        message = self._reader.recv()
        if isinstance(message, Failed):
            raise message
        return message

    def go_on(self) -> None:
        """Let the function return from its `wait`."""
        self._go_on.set()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, signal: signal.Signals) -> None:
        os.kill(self.pid, signal)

    def kill(self) -> None:
        if self._process.is_alive():
            with contextlib.suppress(ProcessLookupError):  # it ends by itself just then
                self.send(signal.SIGKILL)
        self._process.join(SECONDS)
        self._reader.close()


class Failed(Exception):
    """What went wrong in the process, as text: not every error can be pickled."""


def _run(function: Callable[..., None], messages: Any, go_on: Any, *args: object) -> None:
    def wait() -> None:
        if not go_on.wait(SECONDS):
            raise TimeoutError

    try:
        function(messages.send, wait, *args)
    except BaseException:
        messages.send(Failed(traceback.format_exc()))


Say = Callable[[Any], None]
Wait = Callable[[], None]


# --- holding -----------------------------------------------------------------------------------


def hold(say: Say, wait: Wait, url: str, leases: dict[str, float], rows: list[str]) -> None:
    """Hold locks until told to go on; then say what became of them."""
    with Locks(url) as locks, ExitStack() as stack:
        held: list[Any] = [locks.lease(name, ttl=ttl) for name, ttl in leases.items()]
        held += [locks.row(name) for name in rows]
        for lock in held:
            stack.enter_context(lock)
        say("held")
        wait()
        say([lock.check() is None and lock.held for lock in held])


def want(say: Say, wait: Wait, url: str, name: str, timeouts: Timeouts | None = None) -> None:
    """Wait for a row lock, and say so when it is there."""
    with Locks(url, timeouts=timeouts) as locks:
        say("waiting")
        with locks.row(name, wait=SECONDS):
            say("locked")


def queue_up(say: Say, wait: Wait, url: str, name: str) -> None:
    """Wait for a lease, say so when it is there, and hold it until told to go on."""
    with Locks(url) as locks:
        say("waiting")
        with locks.lease(name, ttl=SECONDS, wait=SECONDS):
            say("held")
            wait()


def lead(say: Say, wait: Wait, url: str, ttl: float, value: str) -> None:
    """Campaign, proclaim, say so, and lead until told to go on."""
    with Locks(url, label=value) as locks:
        election = locks.election("leader", ttl=ttl)
        say("campaigning")
        with election.campaign() as term:
            term.proclaim(value)
            say(term.fence)
            wait()


def observe(say: Say, wait: Wait, url: str) -> None:
    """Say who leads, each time that is another."""
    with Locks(url) as locks:
        for leader in locks.election("leader").observe(0.02):
            say(None if leader is None else (leader.fence, leader.value))


# --- selling -----------------------------------------------------------------------------------

GOODS = MetaData()
SHELF = Table(
    "shelf",
    GOODS,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("stripe", Integer, primary_key=True, autoincrement=False),
    Column("stock", Integer, nullable=False),
)
SOLD = Table("sold", GOODS, Column("amount", Integer, nullable=False))


def sell(say: Say, wait: Wait, url: str, stripes: int, seed: int) -> None:
    """Take this and that from a striped counter and write it down, until nothing is left."""
    drawn, engine = random.Random(seed), make_engine(url)
    with Locks(engine) as locks:
        counter = locks.counter(SHELF.c.stock, key=SHELF.c.id, stripes=stripes)
        say("ready")
        wait()
        while True:
            try:
                with engine.begin() as connection:
                    amount = drawn.choice((1, 1, 1, 60))
                    counter.take(connection, 1, amount)
                    connection.execute(SOLD.insert().values(amount=amount))
            except (Conflict, DeadlockDetected):
                continue
            except NotEnough as error:
                if not error.available:
                    break
    say("sold out")


# --- contending --------------------------------------------------------------------------------

NAMES = ("a", "b", "c")


class Tally:
    """Counters changed in a way that loses updates, unless a lock protects them.

    A journal notes each section's place in its name's history, its strategy and its fence.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(
                text("CREATE TABLE tally (name VARCHAR(9) PRIMARY KEY, n INTEGER NOT NULL)")
            )
            connection.execute(
                text(
                    "CREATE TABLE journal (name VARCHAR(9), n INTEGER, strategy VARCHAR(9), "
                    "fence INTEGER)"
                )
            )
            for name in NAMES:
                connection.execute(text("INSERT INTO tally VALUES (:name, 0)"), {"name": name})

    def change(
        self, name: str, strategy: str, fence: int | None, on: Connection | None = None
    ) -> None:
        """Read, think, write: each in a transaction of its own, or all in that of `on`."""
        n = self._run("SELECT n FROM tally WHERE name = :name", {"name": name}, on)
        os.sched_yield()
        values = {"name": name, "n": n + 1, "strategy": strategy, "fence": fence}
        self._run("UPDATE tally SET n = :n WHERE name = :name", values, on)
        self._run("INSERT INTO journal VALUES (:name, :n, :strategy, :fence)", values, on)

    def _run(self, statement: str, values: dict[str, Any], on: Connection | None) -> Any:
        if on is None:
            with self._engine.begin() as connection:
                return self._run(statement, values, connection)
        result = on.execute(text(statement), values)
        return result.scalar_one() if result.returns_rows else None

    def history(self) -> dict[str, list[tuple[int, str, int | None]]]:
        with self._engine.connect() as connection:
            return {
                name: [
                    (n, strategy, fence)
                    for n, strategy, fence in connection.execute(
                        text(
                            "SELECT n, strategy, fence FROM journal WHERE name = :name ORDER BY n"
                        ),
                        {"name": name},
                    )
                ]
                for name in NAMES
            }


def make_engine(url: str) -> Engine:
    arguments = {"timeout": SECONDS} if url.startswith("sqlite") else {}
    return create_engine(url, connect_args=arguments)


def change_borrowed(locks: Locks, engine: Engine, tally: Tally, name: str) -> bool:
    """Change a tally in a transaction with the row lock; False if it has to be run again."""
    try:
        with engine.begin() as connection, locks.row(name, wait=SECONDS, on=connection):
            tally.change(name, "borrowed", None, connection)
    except Conflict:
        # A lease came first, and where a refused row lock stays in its way until the transaction
        # ends, dblock does not wait for it there.
        if not locks._database.dialect.traits.refusal_holds:
            raise
        return False
    return True


def contend(say: Say, wait: Wait, url: str, seed: int, sections: int) -> None:
    """Change the tallies under locks of all strategies, in an order of one's own."""
    chance, engine = random.Random(seed), make_engine(url)
    tally = Tally(engine)
    with Locks(url) as locks:
        # Under a row lock of dblock's own nothing else can write where there is one writer.
        alone = locks._database.dialect.traits.one_writer
        strategies = ["lease", "borrowed"] + ["row"] * (not alone)
        say("ready")
        wait()
        for _ in range(sections):
            name, strategy = chance.choice(NAMES), chance.choice(strategies)
            if strategy == "lease":
                with locks.lease(name, ttl=SECONDS, wait=SECONDS) as lease:
                    tally.change(name, strategy, lease.fence)
            elif strategy == "row":
                with locks.row(name, wait=SECONDS):
                    tally.change(name, strategy, None)
            else:
                while not change_borrowed(locks, engine, tally, name):
                    pass
        say("done")
    engine.dispose()
