"""How a queue fares when those in it, or in front of it, are gone; and who else is at its row."""

from __future__ import annotations

from sqlalchemy import text

from dblock import Conflict, DeadlockDetected, LockLost
from dblock.dialects import MariaDB
from dblock.dialects.postgresql.queue import CHANNEL, CLASS
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.users import LENDING
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.thread import Thread


def _dying(seconds: float, me: Thread, *, fair: bool = False) -> None:
    """Take the name, if need be after a wait, and be killed with it."""
    lease = me.lease(NAME, ttl=1, fair=fair, renew=False)
    if me.acquire(lease):
        me.work(seconds)
        me.client.kill()


def in_order(clients: Clients) -> None:
    """Two come one after the other while the name is held, and wait in that order."""

    def fairly(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6, fair=True), 30) as had:
            if had:
                me.work(0.1 if me.name == "a" else 0.02)

    for number, client in enumerate(("a", "b", "c")):
        clients.thread(client, fairly, after=0.01 * number)


def dying_holders(clients: Clients) -> None:
    """Who has the name dies, and so does another; one comes just when the name is free again."""

    def waiting(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6, fair=True), 30) as had:
            if had:
                me.work(0.05)

    clients.thread("a", lambda me: _dying(0.1, me))
    clients.thread("b", waiting, after=0.001)
    clients.thread("c", lambda me: _dying(0.1, me, fair=True), after=1.0002)


def _slowly(me: Thread) -> None:
    with me.holding(me.lease(NAME, ttl=6), 30) as had:
        if had:
            me.work(1.5)


def _dead_waiters(clients: Clients, names: str) -> None:
    """One has the name for a second; others wait for it, and are killed."""

    def killed(me: Thread) -> None:
        me.work(0.5)
        me.client.kill()

    clients.thread("a", lambda me: _dying(0.6, me))
    for number, client in enumerate(names):
        clients.thread(client, once, after=0.01 + 0.01 * number)
        clients.thread(client, killed)


def dead_in_front(clients: Clients) -> None:
    """Those in front of two who wait die, and so does the holder."""

    _dead_waiters(clients, "bcde")
    clients.thread("f", _slowly, after=0.1)
    clients.thread("g", once, after=0.11)


def dead_alone(clients: Clients) -> None:
    """All who wait die, and so does the holder; somebody tries when the name is free."""

    def trying(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0):
            pass

    _dead_waiters(clients, "b")
    clients.thread("f", trying, after=1.1)


def dead_first(clients: Clients) -> None:
    """The first who waits is killed, and then the name is given back."""

    def holder(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0) as had:
            if had:
                me.work(0.5)

    def killed(me: Thread) -> None:
        me.work(0.2)
        me.client.kill()

    clients.thread("a", holder)
    clients.thread("b", once, after=0.01)
    clients.thread("b", killed)
    clients.thread("c", once, after=0.02)


def short(clients: Clients) -> None:
    """Two want the same name for less than a first term."""

    def shortly(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=1), 30) as had:
            if had:
                me.work(0.05)

    for client in ("a", "b"):
        clients.thread(client, shortly)


def passed_for_long(clients: Clients) -> None:
    """What was passed on is held for long, and one more waits; somebody tries another name."""

    def trying(me: Thread) -> None:
        with me.holding(me.lease("y", ttl=6), 0):
            pass

    clients.thread("a", once)
    clients.thread("b", _slowly, after=0.001)
    clients.thread("c", once, after=0.002)
    clients.thread("d", trying, after=1.0)


def row_for_long(clients: Clients) -> None:
    """One tries to get a lease while the name's row is locked, and is told at once."""

    def locking(me: Thread) -> None:
        with me.holding(me.locks.row(NAME), 5):
            me.work(2)

    def trying(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0):
            pass

    clients.thread("a", locking)
    clients.thread("b", trying, after=0.1)


def busy_worker(clients: Clients) -> None:
    """One tries to get the name again and again: who waits for it gets it all the same."""
    rounds: list[float] = []

    def busy(me: Thread) -> None:
        lease = me.lease(NAME, ttl=6)
        while me.loop.now < 3 and (not rounds or me.beliefs.waits):
            with me.holding(lease, 0) as had:
                if had:
                    rounds.append(me.loop.now)
                    me.work(0.05)
            me.work(0.001)

    def patient(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 30):
            if len(rounds) > 10 and me.allowance.quiet:
                raise Violation(f"{me.name} waits while another has {NAME!r} {len(rounds)} times")

    clients.thread("a", busy)
    clients.thread("b", patient, after=0.01)


def another_database(clients: Clients) -> None:
    """Somebody has the gate of the same name in another database of the server."""

    def holder(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0):
            me.work(0.2)

    def trying(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0):
            pass

    def stranger(me: Thread) -> None:
        dialect = me.locks._database.dialect
        assert isinstance(dialect, MariaDB)
        gate = dialect.lock_of_users.replace("%(user_lock)s", ":gate")
        gate = gate.replace("DATABASE()", "'another'")
        with me.transaction() as connection:
            connection.execute(
                text(f"SELECT GET_LOCK({gate}, 0)"), {"gate": dialect.user_lock(NAME)}
            )
            me.work(1)

    clients.thread("a", holder)
    clients.thread("b", stranger, after=0.05)
    clients.thread("c", trying, after=0.3)


# --- others at the row -------------------------------------------------------------------------

_AT_ROW = text("SELECT fence FROM dblock_lock WHERE lock_name = :name FOR UPDATE")
_AT_WAITERS = text("SELECT id FROM dblock_waiter FOR UPDATE")
_FREES = text("UPDATE dblock_lock SET token = NULL WHERE lock_name = :name AND token = :token")
_OCCUPIES = text("SELECT pg_advisory_lock(:class, :channel)")
_QUEUES = text(
    "UPDATE dblock_lock SET waiters = array_append(waiters, :ticket) WHERE lock_name = :name"
)
_LEAVES = text(
    "UPDATE dblock_lock SET waiters = nullif(array_remove(waiters, :ticket), '{}') "
    "WHERE lock_name = :name"
)


def joined_meanwhile(clients: Clients) -> None:
    """Somebody joins the queue while the name is about to be passed on, and both have to wait for
    who is at the row just then."""

    def holder(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 30) as had:
            if had:
                me.work(0.5 - me.loop.now)

    def stranger(me: Thread) -> None:
        with me.transaction() as connection:
            connection.execute(_AT_ROW, {"name": NAME})
            me.work(0.015)

    clients.thread("a", once)
    clients.thread("b", holder, after=0.001)
    clients.thread("c", once, after=0.495)
    clients.thread("s", stranger, after=0.49)


def freed_before(clients: Clients) -> None:
    """A version of before frees a name by force: the token goes, and the expiry stays."""

    def holder(me: Thread) -> None:
        lease = me.lease(NAME, ttl=20, renew=False)
        with me.holding(lease, 0) as had:
            if had:
                me.work(1.0)

    def freeing(me: Thread) -> None:
        row = me.ledger.rows.get(NAME)
        if row is None or row.token is None:
            return
        me.ledger.forced.add(row.token)
        with me.transaction() as connection:
            connection.execute(_FREES, {"name": NAME, "token": row.token})

    clients.thread("a", holder, may=(LockLost,))
    clients.thread("b", freeing, after=0.1)
    clients.thread("c", once, after=0.2)


def row_in_an_older_transaction(clients: Clients) -> None:
    """A row is locked in a transaction that began before the lease on it ran out."""

    def locking(me: Thread) -> None:
        try:
            with me.transaction() as connection:
                connection.execute(text("SELECT 1"))
                if me.acquire(me.locks.row(NAME, on=connection), 30):
                    me.work(0.05)
        except Conflict:
            me.note("Conflict")

    clients.thread("a", lambda me: _dying(0.1, me))
    clients.thread("b", locking, after=0.2)


def dead_wait(clients: Clients) -> None:
    """Who waits is killed, and has what another waits for; nobody can remove that it waits."""

    def killed(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=30, renew=False), 0):
            me.acquire(me.lease("y", ttl=6), 20)

    def later(me: Thread) -> None:
        with me.holding(me.lease("y", ttl=6), 0):
            me.work(10)
            try:
                with me.holding(me.lease(NAME, ttl=6), 3):
                    pass
            except DeadlockDetected:
                if not me.allowance.late("a.2"):  # else it may seem to be there yet
                    raise

    def killing(me: Thread) -> None:
        me.client.kill()

    def stranger(me: Thread) -> None:
        with me.transaction() as connection:
            connection.execute(_AT_WAITERS)
            me.work(1)

    clients.thread("b", later)
    clients.thread("a", killed, after=0.01)
    clients.thread("a", killing, after=2)
    clients.thread("s", stranger, after=9.9)


def waited_before(clients: Clients) -> None:
    """One of a version of before is the first in the queue: it can be called, and no more."""
    channel = 0x0000ABCD

    def holder(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=6), 0) as had:
            if had:
                me.work(0.5)

    def waiter(me: Thread) -> None:
        ticket = {"name": NAME, "ticket": f"{channel:0{CHANNEL}x}1f"}
        with me.ledger.store.lending.connect() as connection:
            with connection.begin():
                connection.execute(_OCCUPIES, {"class": CLASS, "channel": channel})
                connection.execute(_QUEUES, ticket)
            me.work(1.0)
            with connection.begin():
                connection.execute(_LEAVES, ticket)

    clients.thread("a", holder)
    clients.thread("b", waiter, after=0.1)
    clients.thread("c", once, after=0.2)


#: Who waits is called, so that who is gone is told from who is there.
CALLS = frozenset({"calls"})
#: Sessions wait at a user lock.
GATES = frozenset({"gates"})
#: A row lock keeps nobody from other names: as on the servers, not in a file.
ROWS = frozenset({"rows"})

SCENARIOS = {
    "in-order": Scenario(in_order, needs=CALLS),
    "dying-holders": Scenario(dying_holders, needs=CALLS),
    "dead-in-front": Scenario(dead_in_front, needs=CALLS | LENDING),
    "dead-alone": Scenario(dead_alone, needs=CALLS),
    "dead-first": Scenario(dead_first, needs=CALLS),
    "short-terms": Scenario(short),
    "passed-for-long": Scenario(passed_for_long, needs=ROWS),
    "row-for-long": Scenario(row_for_long, needs=ROWS),
    "another-database": Scenario(another_database, needs=GATES | LENDING),
    "joined-meanwhile": Scenario(joined_meanwhile, needs=CALLS | LENDING),
    "freed-by-a-version-before": Scenario(freed_before, needs=CALLS | LENDING),
    "busy-worker": Scenario(busy_worker, needs=ROWS),
    "row-in-an-older-transaction": Scenario(row_in_an_older_transaction, needs=ROWS | LENDING),
    "dead-wait": Scenario(dead_wait, needs=CALLS | LENDING),
    "waited-by-a-version-before": Scenario(waited_before, needs=CALLS | LENDING),
}
