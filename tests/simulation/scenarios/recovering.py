"""What was granted, and may be forgotten: in a crash, by a standby, in a dump, in days."""

from __future__ import annotations

import warnings
from functools import partial

from sqlalchemy import TextClause, text

from dblock import LockLost, Unavailable
from tests.simulation.loop import Violation
from tests.simulation.run import Clients, Scenario
from tests.simulation.scenarios.users import LENDING
from tests.simulation.scenarios.waiting import NAME, once
from tests.simulation.thread import Thread

#: A little more than the time for which a TTL is known that was asked for once.
DAY = 25 * 3600.0
#: Longer than any TTL that is asked for but once in a scenario.
LONG = 40.0


def _keeping(me: Thread, ttl: float, seconds: float) -> None:
    """Have the name for so long, and believe in it, without asking the database about it."""
    lease = me.lease(NAME, ttl=ttl, renew=False)
    with me.holding(lease, 0) as had:
        if had:
            me.work(seconds)


def _of_day(me: Thread, ttl: float = 5.0) -> bool:
    """Have another name for a moment, if that is granted at once."""
    with me.holding(me.lease("y", ttl=ttl), 0) as had:
        return had


def _for_days(me: Thread, *, back: bool = False) -> None:
    """Have the name, for days unless it is given ``back``: who has it is killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is longer than one should do with
        lease = me.lease(NAME, ttl=5 * DAY, renew=False)
    if me.acquire(lease, 0):
        if back:
            me.release(lease)
        me.client.kill()


def again(clients: Clients) -> None:
    """One has the name again and again, however long it has to wait for it."""

    def working(me: Thread) -> None:
        for _ in range(4):
            with me.holding(me.lease(NAME, ttl=6), 60) as had:
                if had:
                    me.work(0.3)

    clients.thread("a", working, may=(LockLost,))


def kept(clients: Clients) -> None:
    """One keeps the name for nearly as long as it can, and another waits for it."""
    clients.thread("a", lambda me: _keeping(me, 8, 7), may=(LockLost,))
    clients.thread("b", once, after=0.5)


def row_behind(clients: Clients) -> None:
    """The same, and the other wants to lock the row."""

    def locking(me: Thread) -> None:
        with me.holding(me.locks.row(NAME), 30) as had:
            if had:
                me.work(0.05)

    clients.thread("a", lambda me: _keeping(me, 8, 7), may=(LockLost,))
    clients.thread("b", locking, after=0.5, may=(Unavailable,))


def renewed_for_longer(clients: Clients) -> None:
    """One renews for longer than anybody has asked for."""

    def renewing(me: Thread) -> None:
        lease = me.lease(NAME, ttl=3, renew=False)
        with me.holding(lease, 0) as had:
            if had:
                with me.calling("renew"):
                    lease.renew(LONG)
                me.work(15)

    clients.thread("a", renewing, may=(LockLost,))
    clients.thread("b", once, after=1)


def _crash(me: Thread) -> None:
    """Let the server crash, and be there again."""
    me.ledger.store.crash()
    me.work(0.5)


def nights(back: bool, clients: Clients) -> None:
    """One has the name for days, or gave it ``back``; each day another is wanted for a moment; then
    the server crashes, and the name is wanted."""

    def daily(me: Thread) -> None:
        for _ in range(3):
            me.work(DAY + 10)
            _of_day(me)
        _crash(me)

    def next_one(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=5), 30) as had:
            if back and not had and me.allowance.quiet:
                raise Violation("a TTL that nobody asks for any more is waited for")

    clients.thread("a", lambda me: _for_days(me, back=back))
    clients.thread("b", next_one, after=3 * DAY + 40)
    clients.thread("c", daily)


def days_in_a_pause(clients: Clients) -> None:
    """The server crashes under a lease of days, and again a few days later: it is not over yet."""

    def daily(me: Thread) -> None:
        me.work(10)
        _crash(me)
        for _ in range(2):
            _of_day(me)
            me.work(DAY + 10)
        _of_day(me)
        _crash(me)

    def waiting(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=5), 30):
            pass

    clients.thread("a", _for_days)
    clients.thread("b", waiting, after=2 * DAY + 40)
    clients.thread("c", daily)


def when_a_day_is_over(clients: Clients) -> None:
    """Two begin anew at once, of whom one wants a name for longer."""
    clients.thread("a", lambda me: _keeping(me, LONG, 1), after=DAY + 10)
    clients.thread("b", lambda me: _of_day(me), after=DAY + 10 - 0.0001)


def clock_put_back(clients: Clients) -> None:
    """The database's clock is put back: what is held is held yet, and soon more is granted."""

    def keeping(me: Thread) -> None:
        lease = me.lease(NAME, ttl=8, renew=False)
        with me.holding(lease, 0) as had:
            if had:
                me.work(2)
                with me.calling("renew"):
                    lease.renew()
                me.work(1)

    def putting(me: Thread) -> None:
        me.ledger.store.ahead = -3600.0

    def other(me: Thread) -> None:
        with me.holding(me.lease("y", ttl=6), 30) as had:
            if not had and me.allowance.quiet:
                raise Violation("nothing is granted for as long as the clock was wrong")

    clients.thread("a", keeping)
    clients.thread("b", putting, after=1)
    clients.thread("c", other, after=1.1)


def restored(clients: Clients) -> None:
    """All is put back from a dump that was made before the name was taken."""
    clients.allowance.fails_over = True  # as if another server had taken its place
    clients.thread("a", lambda me: _keeping(me, 8, 7), may=(LockLost,))
    clients.thread("b", lambda me: me.ledger.store.restore(), after=0.5)
    clients.thread("c", once, after=1)


def replicated(clients: Clients) -> None:
    """Another server goes on, which granted leases before and has been subscribed to this one's
    rows since. It has not got that of the name."""
    clients.allowance.fails_over = True
    clients.thread("a", lambda me: _keeping(me, 8, 7), may=(LockLost,))
    clients.thread("b", lambda me: me.ledger.store.replicate(), after=0.5)
    clients.thread("c", once, after=1)


def made_durable(clients: Clients) -> None:
    """The server crashes, and before anybody has found that out its tables are made durable."""
    store = clients.store

    def killed(me: Thread) -> None:
        if me.acquire(me.lease(NAME, ttl=8, renew=False), 0):
            me.client.kill()

    def changing(me: Thread) -> None:
        store.crash()
        store.set_durability("durable")

    clients.thread("a", killed)
    clients.thread("b", changing, after=0.5)
    clients.thread("c", once, after=1)


# --- others at the rows ------------------------------------------------------------------------

_AT_NAME = text("SELECT fence FROM dblock_lock WHERE lock_name = 'x' FOR UPDATE")
_AT_EPOCH = text("SELECT epoch FROM dblock_epoch FOR UPDATE")


def _at(row: TextClause, seconds: float, me: Thread) -> None:
    """Be at a row for a moment, as a statement of another's may be."""
    with me.transaction() as connection:
        connection.execute(row)
        me.work(seconds)


def taken_at_midnight(clients: Clients) -> None:
    """Who takes a name for long waits for its row until the day is over, and another begins anew
    in between."""

    def patient(me: Thread) -> None:
        with me.holding(me.lease(NAME, ttl=LONG), 30) as had:
            if had:
                me.work(1)

    clients.thread("a", lambda me: _keeping(me, LONG, 0.1))
    clients.thread("b", lambda me: _ending(me), after=DAY - 9)
    clients.thread("a", patient, after=DAY - 8)
    clients.thread("s", partial(_at, _AT_NAME, 0.025), after=DAY - 0.02)
    clients.thread("c", lambda me: _of_day(me), after=DAY + 0.0005)


def _ending(me: Thread) -> None:
    """Let the name run out just before the day is over."""
    lease = me.locks.lease(NAME, ttl=9 - 0.01, renew=False)
    if me.acquire(lease, 0):
        me.client.kill()


def begun_at_once(clients: Clients) -> None:
    """Two begin anew, and both have to wait for who is at the epoch's row."""
    clients.thread("a", lambda me: _keeping(me, LONG, 1), after=DAY + 10)
    clients.thread("b", lambda me: _of_day(me), after=DAY + 10)
    clients.thread("s", partial(_at, _AT_EPOCH, 0.02), after=DAY + 10.0009)


def found_at_once(clients: Clients) -> None:
    """The same after a crash, which both find out."""
    clients.thread("a", lambda me: _keeping(me, 6, 0.1))
    clients.thread("s", _crash, after=0.5)
    for client in ("b", "c"):
        clients.thread(client, once, after=1)
    clients.thread("s", partial(_at, _AT_EPOCH, 0.02), after=1.0003)


#: What was lost is waited for.
EPOCHS = frozenset({"epochs"})
#: Its operators do things to it: put it back from a dump, its clock back, make tables durable; or
#: let it run for days.
OPERATORS = EPOCHS | {"operators"}
_DAYS = 5 * DAY

SCENARIOS = {
    "again": Scenario(again, needs=EPOCHS),
    "kept": Scenario(kept, needs=EPOCHS),
    "row-behind": Scenario(row_behind, needs=EPOCHS | {"rows"}),
    "renewed-for-longer": Scenario(renewed_for_longer, needs=EPOCHS),
    "nights": Scenario(partial(nights, False), needs=OPERATORS, lasts=_DAYS),
    "nights-later": Scenario(partial(nights, True), needs=OPERATORS, lasts=_DAYS),
    "days-in-a-pause": Scenario(days_in_a_pause, needs=OPERATORS, lasts=_DAYS),
    "when-a-day-is-over": Scenario(when_a_day_is_over, needs=EPOCHS, lasts=_DAYS),
    "clock-put-back": Scenario(clock_put_back, needs=OPERATORS),
    "made-durable": Scenario(made_durable, needs=OPERATORS),
    "restored": Scenario(restored, needs=OPERATORS),
    "replicated": Scenario(replicated, needs=OPERATORS),
    "taken-at-midnight": Scenario(taken_at_midnight, needs=EPOCHS | LENDING, lasts=_DAYS),
    "begun-at-once": Scenario(begun_at_once, needs=EPOCHS | LENDING, lasts=_DAYS),
    "found-at-once": Scenario(found_at_once, needs=EPOCHS | LENDING),
}
