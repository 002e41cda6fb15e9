"""A thread of a client, as a scenario sees it: what it does is taken down, and what it is told is
compared with what is so."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit
from sqlalchemy import select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from dblock import (
    Conflict,
    DeadlockDetected,
    Leader,
    Leadership,
    Lease,
    LockLost,
    NotEnough,
    OutcomeUnknown,
    QueryTimeout,
    RowLock,
    Semaphore,
    SharedLease,
    Unavailable,
)
from dblock.errors import DBLockError
from dblock.handles.held import HeldLease
from dblock.handles.lease import TakeableLease
from dblock.protocol.slots import slot_name
from tests.simulation.allowance import SILENT
from tests.simulation.beliefs import Wait
from tests.simulation.knowing import Doubt
from tests.simulation.ledger import own
from tests.simulation.lending import lent
from tests.simulation.loop import Actor, Violation
from tests.simulation.tables import STOCK, WRITTEN

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.run import Clients

#: Who leads: the fence and the value.
Led = tuple[int, str | None] | None
Kinds = tuple[type[Exception], ...]

#: Seconds within which an observer sees what was proclaimed, where nothing fails or is late.
OBSERVED_WITHIN = 1.0
#: Kinds of statements that give a name back.
_RELEASES = ("release", "pass_on", "release_and_unlock", "leave_readers")


class Thread:
    """What a scenario's threads do. ``may`` are the errors that are no surprise in it."""

    actor: Actor

    def __init__(self, clients: Clients, client: Client, name: str, may: Kinds) -> None:
        self.client = client
        self.locks = client.locks
        self.name = name
        self.loop = clients.loop
        self.beliefs = clients.beliefs
        self.ledger = clients.ledger
        self.allowance = clients.allowance
        self._may = may

    def live(self, run: Callable[[Thread], object]) -> None:
        """Run a scenario's function; what it raises has to have a reason."""
        try:
            run(self)
        except KeyboardInterrupt:
            self.note("KeyboardInterrupt")
        except (DBLockError, SQLAlchemyError) as error:
            self._told(error)

    def _told(self, error: Exception) -> None:
        """Take down an error; it has to have a reason."""
        self.note(type(error).__name__)
        if not isinstance(error, QueryTimeout):
            self.ledger.unknowing.add(self.actor)
        if not self._explained(error):
            raise Violation(f"{self.name} is told, without a reason: {error!r}") from error

    @contextmanager
    def _beside_another(self) -> Iterator[None]:
        """Take an error down where another one goes on."""
        try:
            yield
        except DBLockError as error:
            self._told(error)

    def _explained(self, error: Exception) -> bool:
        if isinstance(error, self._may):
            return True
        if isinstance(error, LockLost):
            return not self.allowance.quiet
        if isinstance(error, OutcomeUnknown):
            return self.allowance.doubtful
        if isinstance(error, Unavailable | SQLAlchemyError):
            return not self.allowance.answered
        # A failover may forget the record of a run.
        return type(error) is DBLockError and self.allowance.fails_over

    def note(self, what: str) -> None:
        self.beliefs.note(f"{self.name} {what}")

    @contextmanager
    def calling(self, what: str, seconds: float | None = 0.0) -> Iterator[None]:
        """Let a call end within so many seconds, by the client's clock, and what is allowed."""
        start = self.loop.now
        try:
            yield
        finally:
            lasted = self.loop.now - start
            if seconds is not None and not self.loop.over:
                most = seconds / self.client.rate + self.allowance.call
                most += SILENT if self.ledger.store.silent else 0.0
                if lasted > most:
                    raise Violation(f"{self.name}: {what} lasts {lasted:.2f} s, not {most:.2f} s")

    def work(self, seconds: float, *leases: HeldLease) -> None:
        """Let time pass, by the client's own clock; look at the leases before and after it."""
        for lease in leases:
            lease.check()
        self.locks._database.runtime.sleep(seconds)
        for lease in leases:
            lease.check()

    # --- leases and row locks ----------------------------------------------------------------

    def lease(self, name: str, **options: Any) -> Lease:
        """Make a lease whose callbacks are taken down."""
        return self.locks.lease(
            name,
            on_lost=lambda loss: self.beliefs.tell_lost(self, loss),
            on_danger=lambda danger: self.beliefs.tell_danger(self, danger),
            **options,
        )

    def shared(self, name: str, **options: Any) -> SharedLease:
        """Make a shared lease whose callbacks are taken down."""
        return self.locks.shared(
            name,
            on_lost=lambda loss: self.beliefs.tell_lost(self, loss),
            on_danger=lambda danger: self.beliefs.tell_danger(self, danger),
            **options,
        )

    def term(self, name: str, **options: Any) -> Leadership:
        """Make a term whose callbacks are taken down."""
        return self.locks.election(
            name,
            on_lost=lambda loss: self.beliefs.tell_lost(self, loss),
            on_danger=lambda danger: self.beliefs.tell_danger(self, danger),
            **options,
        ).stand()

    def proclaim(self, term: Leadership, value: str) -> None:
        """Proclaim a value; who is told that it was written led when it was."""
        proclaimed, this = self.ledger.proclaimed, (term.name, term.fence)
        try:
            with self.calling("proclaiming"):
                term.proclaim(value)
        except Unavailable as error:
            if proclaimed.get(this) == value:
                raise Violation(f"{self.name} is told that {value!r} was not written") from error
            raise
        self.note(f"{self.name} proclaims {value}")
        if proclaimed.get(this) != value:
            raise Violation(f"{self.name} is told that {value!r} was written, which was not")

    def observe(self, name: str, last: str) -> None:
        """Observe a leader until that has proclaimed a value; what is told has to be so."""
        observation = self.locks.election(name).observe(0.2)
        while True:
            before = len(self.ledger.leaders)
            leader = next(observation)
            self.note(f"{self.name} sees {None if leader is None else leader.value}")
            self._check_leader(name, leader, self.ledger.leaders[before:])
            if leader is not None and leader.value == last:
                break
        late = self.loop.now - self.ledger.proclaimed_at
        if self.allowance.quiet and late > OBSERVED_WITHIN:
            raise Violation(f"{self.name} sees {last!r} {late:.2f} s after it was proclaimed")

    def _check_leader(self, name: str, leader: Leader | None, leaders: Sequence[Led]) -> None:
        """Who is told to lead was the holder when that was read, and the value is its own."""
        told = None if leader is None else (leader.fence, leader.value)
        if told in leaders:
            return
        store = self.ledger.store
        if leader is None and store.falls:
            return  # it is not known yet whether the database has forgotten anything
        if leader is not None and store.falls:
            # It may have forgotten the value, and not the hold.
            fences = [one[0] for one in leaders if one is not None]
            if leader.fence in fences and leader.value is None:
                return
        raise Violation(f"{self.name} is told that {told} leads {name!r}, not {leaders}")

    def acquire(
        self,
        lock: TakeableLease | Leadership | RowLock,
        wait: float | None = None,
        settling: float = 0.0,
    ) -> bool:
        """Take a lock, and believe in it; ``wait`` is in seconds, None for ever.

        It may take ``settling`` seconds more to find out what became of a try.
        """
        start, knowing = self.loop.now, self.beliefs.knowing
        knowing.begin(self.actor, lock.name)
        fair = isinstance(lock, HeldLease) and lock._options.fair
        try:
            with (
                self.beliefs.waiting(self, lock.name, wait, fair=fair),
                self.calling(f"taking {lock.name!r}", None if wait is None else wait + settling),
                self._lent(lock),
            ):
                if isinstance(lock, Leadership):
                    had = lock.begin(wait) is None
                else:
                    had = lock.acquire(timeout=-1 if wait is None else wait)
        except OutcomeUnknown as error:
            doubt, left = (
                knowing.doubt(self.actor, lock.name),
                knowing.unreturned(self.actor, lock.name),
            )
            if isinstance(lock, HeldLease) and doubt is Doubt.NONE and not left:
                raise Violation(f"{self.name} can know what it is told to be unknown") from error
            raise
        except DBLockError as error:
            doubtful = knowing.doubt(self.actor, lock.name) is Doubt.OPEN
            doubtful = doubtful or knowing.unreturned(self.actor, lock.name)
            if isinstance(error, Unavailable) and doubtful:
                raise Violation(f"{self.name} is not told that nobody knows: {error!r}") from error
            self._not_acquired(lock.name, start)
            if isinstance(error, DeadlockDetected) and not self._in_cycle(lock.name):
                raise Violation(f"{self.name} is told of a deadlock that is none") from error
            raise
        if had:
            self.beliefs.begin(self, lock)
        else:
            self.note(f"has not {lock.name}")
            if knowing.unreturned(self.actor, lock.name):
                raise Violation(f"{self.name} is not told that nobody knows")
            self._not_acquired(lock.name, start)
            self.beliefs.gave_up.add((self.actor, lock.name))
            told = self.allowance.quiet or self.allowance.told
            if wait == 0 and told and self._was_free(lock.name, start):
                raise Violation(f"{self.name} is refused {lock.name!r}, which was free")
        return had

    def _in_cycle(self, name: str) -> bool:
        """Whether those who wait for each other, from the holders of a name on, wait for this."""
        names, seen = [name], {name}
        for one in names:
            for holder in self.beliefs.believed(one):
                if holder.thread is self:
                    return True
                for wait in self.beliefs.waits:
                    if wait.thread is holder.thread and wait.name not in seen:
                        seen.add(wait.name)
                        names.append(wait.name)
        return not self.allowance.quiet

    def _was_free(self, name: str, start: float) -> bool:
        """Whether a name was free all the time, and nobody was in the way."""
        row, store = self.ledger.rows.get(name), self.ledger.store
        if store.one_writer or self.beliefs.believed(name):
            return False  # somebody may have been at the file for a moment
        if store.locked(name):
            return False  # by one who does not know it yet, perhaps
        if any(link.locks for link in store.links) or self.beliefs.transacted >= start:
            return False  # the users may have locked the row, or the gap where it would be
        calls = self.allowance.calls
        if not calls and any(wait.name == name for wait in self.beliefs.waits):
            return False  # who waits at its gate comes first, and has no ticket
        moment = start * store.rate + store.ahead
        if store.closed_until() > moment:
            return False  # nothing is granted
        if row is None:
            return True
        expired = row.expires is None or row.expires < moment
        waiting = [one for one in row.tickets if not (calls and self.ledger.is_gone(one))]
        changed = self.ledger.changed.get(name, -math.inf)
        begun = max(changed, self.beliefs.given_back.get(name, -math.inf))
        return expired and not waiting and begun < start

    @contextmanager
    def _lent(self, lock: HeldLease | RowLock) -> Iterator[None]:
        if isinstance(lock, RowLock) and isinstance(lock._on, Connection):
            with lent(lock._on):
                yield
        else:
            yield

    def _not_acquired(self, name: str, start: float) -> None:
        """Promise 7: who is told so does not have it."""
        row = self.ledger.rows.get(name)
        if row is None or row.token is None or row.free(self.ledger.store.clock()):
            return
        back = self.ledger.store.left.get(name)
        if back is not None and back.token == row.token:
            return  # it was given back, and a failover has brought it back
        for granted in (self.ledger.grants[token] for token in row.holders):
            if granted.actor is self.actor and granted.at >= start:
                raise Violation(f"{self.name} is told that it has not {name!r}: {row.fence}")

    def release(self, lock: HeldLease | RowLock, after: float = 0.0) -> None:
        """Give a lock back; who is told that it was given back had it until then."""
        if isinstance(lock, HeldLease):
            self._give_back(
                lock,
                after,
                partial(lock.release, after) if isinstance(lock, Lease) else lock.release,
            )
        else:
            self._give_back(lock, after, lock.release)

    def _give_back(
        self, lock: HeldLease | RowLock, after: float, give_back: Callable[[], object]
    ) -> None:
        if self.loop.over:
            raise GreenletExit
        belief = self.beliefs.end(self, lock.name)
        hold = None if belief is None else belief.lease
        gone = hold is not None and not self.ledger.has(lock.name, own(hold))
        clock = self.ledger.store.clock()
        with self.calling(f"giving {lock.name!r} back"):
            if after and hold is not None:
                self.ledger.leaving.add(hold.token)
            give_back()
        if hold is None:
            return
        self.beliefs.released.append(hold)
        if gone and not self.allowance.fails(self.client.name, *_RELEASES):
            raise Violation(f"{self.name} is told that it gave {lock.name!r} back, which was lost")
        row = self.ledger.rows.get(lock.name)
        back = self.ledger.store.left.get(lock.name)
        if row is None or (back is not None and back.token == hold.token):
            return  # a crash or a failover has lost it, or has brought it back
        if not after and own(hold) in row.holders:
            raise Violation(f"{self.name} is told that it gave {lock.name!r} back, and has it")
        if after and row.token == hold.token:
            self.ledger.left.add(hold.token)
            self.ledger.final.add(hold.token)
            until = clock + after * self.ledger.store.rate / self.client.rate
            assert row.expires is not None
            if row.expires < until - 0.002 and self.client.rate == self.ledger.store.rate:
                raise Violation(f"{lock.name!r} is kept until {row.expires}, not {until}")

    def detach(self, lease: Lease, ttl: float) -> str:
        """Let another go on with a hold: this one does not believe in it any more."""
        texts: list[str] = []
        self._give_back(lease, ttl, lambda: texts.append(lease.detach(ttl)))
        return texts[0]

    def attach(self, text: str, ttl: float) -> Lease:
        """Go on with a hold, and believe in it. Raises LockLost where it is told to be over."""
        lease = self.locks.attach(
            text,
            ttl=ttl,
            on_lost=lambda loss: self.beliefs.tell_lost(self, loss),
            on_danger=lambda danger: self.beliefs.tell_danger(self, danger),
        )
        start, knowing = self.loop.now, self.beliefs.knowing
        clock = self.ledger.store.clock()
        knowing.begin(self.actor, lease.name)
        try:
            with self.calling(f"attaching {lease.name!r}"):
                lease.acquire()
        except OutcomeUnknown as error:
            if knowing.doubt(self.actor, lease.name) is Doubt.NONE:
                raise Violation(f"{self.name} can know what it is told to be unknown") from error
            raise
        except DBLockError as error:
            doubt = knowing.doubt(self.actor, lease.name)
            if doubt is Doubt.OPEN and not isinstance(error, LockLost):
                raise Violation(f"{self.name} is not told that nobody knows: {error!r}") from error
            self._not_acquired(lease.name, start)
            if isinstance(error, LockLost):
                self._told_why(lease.name, error, clock)
            known = isinstance(error, LockLost) and error.reason != "failover"
            if known and self.ledger.has(lease.name, text.split(".")[0]):
                raise Violation(f"{self.name} is told that a hold is over: {error!r}") from error
            raise
        self.beliefs.begin(self, lease)
        return lease

    def _told_why(self, name: str, loss: LockLost, clock: float) -> None:
        """Who is told that a hold goes on elsewhere is not told so of one that was over before."""
        row = self.ledger.rows.get(name)
        if loss.reason == "attached" and row is not None and row.token and row.free(clock - 0.002):
            raise Violation(f"{self.name} is told that {name!r} goes on elsewhere: {row}")

    @contextmanager
    def holding(
        self, lock: TakeableLease | Leadership | RowLock, wait: float | None = None
    ) -> Iterator[bool]:
        """Do something with a lock, as a with statement does; without, if it is not acquired."""
        had = self.acquire(lock, wait)
        try:
            yield had
        except GreenletExit:
            raise
        except BaseException:
            if had:
                with self._beside_another():
                    self.release(lock)
            raise
        if had:
            self.release(lock)

    # --- slots of semaphores -----------------------------------------------------------------

    def semaphore(self, name: str, limit: int, **options: Any) -> Semaphore:
        """Make a semaphore whose callbacks are taken down."""
        return self.locks.semaphore(
            name,
            limit,
            on_lost=lambda loss: self.beliefs.tell_lost(self, loss),
            on_danger=lambda danger: self.beliefs.tell_danger(self, danger),
            **options,
        )

    @contextmanager
    def in_slot(self, semaphore: Semaphore, wait: float | None = None) -> Iterator[Lease | None]:
        """Do something with a slot; with None if there is none."""
        slot = self._take_slot(semaphore, wait)
        try:
            yield slot
        except GreenletExit:
            raise
        except BaseException:
            if slot is not None:
                with self._beside_another():
                    self._give_back(slot, 0.0, semaphore.release)
            raise
        if slot is not None:
            self._give_back(slot, 0.0, semaphore.release)

    def _take_slot(self, semaphore: Semaphore, wait: float | None) -> Lease | None:
        start, knowing, name = self.loop.now, self.beliefs.knowing, semaphore.name
        knowing.begin(self.actor, name)
        until = None if wait is None else start + wait / self.client.rate
        waiting = Wait(self, name, start, until)
        self.ledger.semaphores.waits.append(waiting)
        try:
            with self.calling(f"taking a slot of {name!r}", wait):
                had = semaphore.acquire(timeout=-1 if wait is None else wait)
        except OutcomeUnknown as error:
            if knowing.doubt(self.actor, name) is Doubt.NONE:
                raise Violation(f"{self.name} can know what it is told to be unknown") from error
            raise
        except DBLockError as error:
            if isinstance(error, Unavailable) and knowing.doubt(self.actor, name) is Doubt.OPEN:
                raise Violation(f"{self.name} is not told that nobody knows: {error!r}") from error
            self._has_no_slot(semaphore, start)
            raise
        finally:
            self.ledger.semaphores.waits.remove(waiting)
        if had:
            slots = self.ledger.semaphores
            limit = slots.limits.get(name, semaphore.limit)
            if limit != semaphore.limit and slots.changed[name] < start:
                raise Violation(
                    f"{self.name} has a slot of {semaphore.limit}, and there are {limit}"
                )
            self.beliefs.begin(self, semaphore.slot)
            return semaphore.slot
        self.note(f"has no slot of {name}")
        self._has_no_slot(semaphore, start)
        return None

    def _has_no_slot(self, semaphore: Semaphore, start: float) -> None:
        for number in range(semaphore.limit):
            self._not_acquired(slot_name(semaphore.name, number + 1), start)

    # --- a transaction of the user's ---------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Begin a transaction of the user's own, and commit it."""
        with self.ledger.store.lending.connect() as connection:
            link = connection.connection.driver_connection.link  # type: ignore[union-attr]
            try:
                with connection.begin():
                    if self.ledger.store.snapshots:
                        connection.execute(select(WRITTEN.c.id)).all()
                    try:
                        yield connection
                    finally:
                        self.beliefs.end_all(self, link)
            finally:
                if link.locks:
                    self.beliefs.transacted = self.loop.now

    def guarded(self, connection: Connection, lease: HeldLease) -> None:
        """Write under a guard, in a transaction of the user's."""
        with lent(connection):
            guard = lease.guard(connection)
            fence = guard.__enter__()
        hold = lease._holds.find()
        if hold is None or hold.lease.term.over(self.client.now()):
            raise Violation(f"{self.name} is given a guard by {lease.name!r}, which is over")
        values = {"name": lease.name, "fence": fence}
        connection.execute(WRITTEN.insert().inline(), values)
        guard.__exit__(None, None, None)

    def write(self, lease: HeldLease) -> None:
        """Write under a guard, in a transaction for this, where the store has such."""
        if "lending" not in self.ledger.store.has:
            return
        with self.transaction() as connection:
            self.guarded(connection, lease)

    def take(self, stock: int, n: int, key: str) -> bool:
        """Take off a counter, and again under the same key until it is known what came of it.

        False if there was not enough.
        """
        self.ledger.changes[key] = stock, n
        counter = self.locks.counter(STOCK.c.amount, key=STOCK.c.id)
        while True:
            try:
                with self.transaction() as connection, lent(connection):
                    counter.take(connection, stock, n, idempotency_key=key)
            except NotEnough:
                self.note(f"has not enough for {key}")
                self.ledger.refused.add(key)
                return False
            except Conflict:
                if not self.ledger.store.snapshots:
                    raise
                self.note("begins again")
                continue
            except (Unavailable, SQLAlchemyError) as error:
                if self.allowance.answered:
                    raise Violation(f"{self.name} could not take {key}: {error!r}") from error
                self.work(0.1)
                continue
            self.note(f"has taken {key}")
            if key not in self.ledger.committed.applied and not self.allowance.fails_over:
                raise Violation(f"{self.name} is told that {key} was taken, which was not")
            return True

    # --- jobs --------------------------------------------------------------------------------

    def run_job(
        self,
        name: str,
        slot: str,
        seconds: float,
        ttl: float,
        wait: float = 0,
        *,
        fails: bool = False,
    ) -> bool:
        """Run a job once in a slot, as one of several hosts; False when it was skipped."""

        @self.locks.cron(name, ttl=ttl, wait=wait, once_for=slot)
        def job() -> bool:
            self.beliefs.begin(self, job.lease)
            try:
                if self.ledger.committed.runs.get((name, slot)) == 0:
                    raise Violation(f"{self.name} runs {name!r} again in {slot!r}")
                self.work(seconds, job.lease)
                if fails:
                    raise ZeroDivisionError
            finally:
                self.beliefs.end(self, name)
            return True

        ran = bool(job())
        self.note(f"has run {name} in {slot}" if ran else f"has not run {name}")
        if ran:
            self.ledger.succeeded(name, slot)
            if not self.ledger.is_recorded(name, slot):
                raise Violation(f"{self.name} is told of a success that is not on record")
        return ran

    # --- what others do to a lock ------------------------------------------------------------

    def force(self, name: str) -> bool:
        """Release a lock whoever has it."""
        self.ledger.forcing.add(self.actor)
        try:
            with self.calling("force"):
                freed = self.locks.release(name, force=True)
        finally:
            self.ledger.forcing.discard(self.actor)
        self.note(f"has freed {name}" if freed else f"has not freed {name}")
        return freed
