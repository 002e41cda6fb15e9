"""The makers of handles: each returns one handle, and does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, Unpack

from ..arguments import (
    LABEL_MAX,
    Seconds,
    check_detached,
    check_flag,
    check_instance,
    check_label,
    check_limit,
    check_max_hold,
    check_name,
    check_semaphore,
    check_token,
)
from ..policy import RetryPolicy
from ..protocol.attach import Detached
from .attached import AttachedLease
from .cron import Cron, Job, Terms
from .detached import DetachedLease, DetachedSemaphore, DetachedSharedLease
from .election import Election
from .lease import Lease
from .multi import MultiLock
from .once import Once
from .options import (
    TAKEN,
    AttachKeywords,
    CronKeywords,
    ElectionKeywords,
    LeaseKeywords,
    LeaseOptions,
    SemaphoreKeywords,
    SkipKeywords,
    check_keywords,
    lease_options,
    plan,
    unknown_option,
)
from .rate import Rate
from .row import RowLock
from .semaphore import Semaphore
from .shared import SharedLease

if TYPE_CHECKING:
    from ..holding.database import Database
    from ..io.borrowed import Borrowable

P = ParamSpec("P")
T = TypeVar("T")


class Classes(NamedTuple):
    """The classes of handles."""

    lease: type[Lease] = Lease
    attached: type[AttachedLease] = AttachedLease
    row: type[RowLock] = RowLock
    election: type[Election] = Election
    semaphore: type[Semaphore] = Semaphore
    shared: type[SharedLease] = SharedLease


class Makers:
    """The methods of :class:`.Locks` that return handles."""

    _database: Database
    #: How the handles repeat refused tries, if they have no ``retry`` of their own.
    retry: RetryPolicy
    #: The options of a lease for which the caller gives none.
    _usual: LeaseOptions
    #: The classes of the handles; a subclass may have others.
    _classes = Classes()

    def lease(self, name: str, **options: Unpack[LeaseKeywords[None]]) -> Lease:
        """Return a lease on ``name``. You hold it until you release it.

        If your process dies, the lease ends ``ttl`` seconds after the last renewal. A short TTL is
        enough, because dblock renews the lease while you hold it. dblock warns of a TTL beyond a
        day: if a holder dies, or the database fails over, other processes have to wait until the
        TTL is over.

        ``wait`` is how long ``with`` and :meth:`Lease.acquire` wait, in seconds: None for ever, 0
        not at all. With ``reentrant=True`` the holding thread can take the lease again, without a
        round trip, and no other thread can release it.

        On PostgreSQL dblock notifies the waiters in the order of arrival. On MySQL and MariaDB one
        waiter polls, and the others wait behind it in the server. On SQLite, and behind a pooler,
        waiters poll after random times. No waiter starves. With ``fair=True`` the order is strict
        on every database, and passing the lease on to the next waiter takes longer. A free name is
        reserved for the first waiter for 0.4 s, so a dead waiter does not stop the others.

        dblock renews the lease after each third of the TTL, or every ``renew_every`` seconds, which
        is at most half of the TTL. It does so at most ``max_renewals`` times, and never past
        ``max_hold`` seconds after you got the lease. Then the lease expires. With ``renew=False``
        dblock does not renew it.

        If two thirds of the TTL pass without a renewal, dblock calls ``on_danger`` with a
        :class:`Danger`, while there is still time to stop. If the lease is lost, it calls
        ``on_lost`` with the LockLost. Both run one after the other in one of dblock's threads, so
        they should not block. If one of your own calls finds the loss, ``on_lost`` runs in your
        thread. dblock logs the exceptions of both.
        """
        given = self._options("lease", options) if options else self._usual
        return self._classes.lease(self._database, check_name(name), given)

    def _options(self, maker: str, given: Mapping[str, Any]) -> LeaseOptions:
        if not given.keys() <= TAKEN[maker]:
            raise unknown_option(maker, given)
        return lease_options(self.retry, self._policy, **given)

    def skip(
        self, name: str, **options: Unpack[SkipKeywords[None]]
    ) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
        """Decorate a function: it holds a lease while it runs. While another holder has the lease,
        a call does nothing and returns None.

        dblock logs each call that it skips, and names the holder. The ``options`` are as in
        :meth:`lease`. If the function itself raises NotAcquired, you get that. If you want a
        record of the runs, use :meth:`cron`.
        """
        checked, given = check_name(name), self._options("skip", options)
        return self._classes.lease(self._database, checked, given._replace(wait=0))._skipping

    def shared(self, name: str, **options: Unpack[LeaseKeywords[None]]) -> SharedLease:
        """Return a lease on ``name`` that others may share: a reader-writer lock's reader.

        The writer takes the same name with :meth:`lease`: it holds the name alone, and while it
        waits no new readers get in. All arguments mean the same as for :meth:`lease`. See
        :class:`SharedLease`.
        """
        return self._classes.shared(
            self._database, check_name(name), self._options("shared", options)
        )

    def attach(self, text: str, **options: Unpack[AttachKeywords[None]]) -> AttachedLease:
        """Return a lease that continues a hold that another process has detached. No I/O.

        ``text`` is the result of :meth:`Lease.detach`. ``with`` and :meth:`Lease.acquire` attach
        the hold, once: a second process that attaches it gets LockLost. From then on this process
        holds the lease, renews it with ``ttl``, and releases it.

        All other arguments are as for :meth:`lease`. ``max_hold`` counts from when it is attached.
        """
        detached = Detached(*check_detached(text))
        given = self._options("attach", options)
        return self._classes.attached(self._database, given, detached)

    def detached(
        self,
        name: str,
        token: str | None = None,
        *,
        owner: str | None = None,
        shared: bool = False,
    ) -> DetachedLease:
        """Return a lease on ``name`` that belongs to no process, but to its ``token``. No I/O.

        ``token`` is 32 hexadecimal digits in lower case, random, secret, and new for each hold;
        without it dblock makes a token. ``owner`` names the holder for people; the default is the
        owner label of these Locks. ``shared`` is as for :meth:`shared`: the name can have many
        holders at a time.

        Use it where the holder is not this process: a client of your service, a step of a workflow.
        See :class:`DetachedLease`.
        """
        make = DetachedSharedLease if check_flag("shared", shared) else DetachedLease
        return make(*self._by_token(check_name(name), token, owner))

    def detached_semaphore(
        self, name: str, limit: int, token: str | None = None, *, owner: str | None = None
    ) -> DetachedSemaphore:
        """Return a semaphore whose slots are taken by ``token``. No I/O.

        ``limit`` is as for :meth:`semaphore`, the other arguments as for :meth:`detached`. See
        :class:`DetachedSemaphore`.
        """
        by_token = self._by_token(check_semaphore(name), token, owner)
        return DetachedSemaphore(*by_token, check_limit(limit))

    def detached_from(self, text: str, *, owner: str | None = None) -> DetachedLease:
        """Return the detached lease that the text of :meth:`Lease.detach` names. No I/O.

        So you can renew or release the hold without attaching it.
        """
        name, token, _ = check_detached(text)
        return DetachedLease(*self._by_token(name, token, owner), guarded=True)

    def _by_token(
        self, name: str, token: str | None, owner: str | None
    ) -> tuple[Database, str, LeaseOptions, str, str]:
        label = "" if owner is None else check_label(owner)[:LABEL_MAX]
        options = LeaseOptions(plan(30.0, False), self.retry, client=label)
        secret = self._database.runtime.token(16) if token is None else check_token(token)
        return self._database, name, options, secret, label or self._database.owner("")

    def row(
        self,
        name: str,
        *,
        wait: Seconds | None = None,
        on: Borrowable | None = None,
        retry: RetryPolicy | None = None,
    ) -> RowLock:
        """Return a row lock on ``name``, in the transaction of ``on``.

        Without ``on`` the row lock has its own connection and transaction. ``wait`` is how long
        ``with`` and :meth:`RowLock.acquire` wait, in seconds: None for ever, 0 not at all.
        """
        policy = self.retry if retry is None else self._policy(retry)
        return self._classes.row(self._database, name, wait, on, retry=policy)

    def election(self, name: str, **options: Unpack[ElectionKeywords[None]]) -> Election:
        """Return the election of the leader of ``name``. No I/O.

        The leader holds the lease on ``name``, so the arguments mean the same as for
        :meth:`lease`: if a leader dies, another can lead ``ttl`` seconds after the dead leader's
        last renewal. Others see ``label`` as the leader's owner label. A term lasts at most
        ``max_hold`` seconds.
        """
        checked, given = check_name(name), self._options("election", options)
        return self._classes.election(self._classes.lease(self._database, checked, given))

    def all(self, *locks: Lease | SharedLease | RowLock, wait: Seconds | None = None) -> MultiLock:
        """Return the given locks as one lock.

        dblock takes them in the order of their names, all or none. ``wait`` is one deadline for all
        of them, in seconds.
        """
        return MultiLock(locks, wait, self._database)

    def semaphore(
        self, name: str, limit: int, **options: Unpack[SemaphoreKeywords[None]]
    ) -> Semaphore:
        """Return a semaphore: at most ``limit`` holders at a time. ``limit`` is at most 1000.

        Each slot is a lease, on the names ``api#1``, ``api#2`` and so on for the semaphore ``api``.
        All arguments except ``limit`` mean the same as for :meth:`lease`, for each hold of a slot.
        With ``fair=True`` waiters get slots strictly in the order of arrival, on every database.
        See :class:`Semaphore`.

        dblock stores the limit with the first use. A process that gives another limit gets
        LimitMismatch; :meth:`Semaphore.resize` changes the limit.
        """
        checked, given = check_semaphore(name), self._options("semaphore", options)
        lease = self._classes.lease(self._database, checked, given)
        return self._classes.semaphore(self._database, lease, check_limit(limit))

    def rate(
        self,
        name: str,
        limit: int,
        *,
        per: Seconds,
        burst: int | None = None,
        cost: int = 1,
        wait: Seconds | None = 0.0,
    ) -> Rate:
        """Return a rate limit: ``limit`` places for each ``per`` seconds, by the database's clock.

        Each call takes a place, or ``cost`` places, and uses them up. At most ``burst`` places can
        be taken at once; the default is ``limit``. Then one comes back after each ``per / limit``
        seconds. See :class:`Rate`.

        ``wait`` is how long ``with`` and :meth:`Rate.acquire` may sleep until the time of their
        place: None without an end, 0 not at all.
        """
        return Rate(self._database, name, limit, per, burst=burst, cost=cost, wait=wait)

    def cron(
        self,
        name: str,
        *,
        wait: Seconds | None = 0.0,
        at_least: Seconds = 0.0,
        at_most: Seconds | None = None,
        once_per: str | None = None,
        once_for: str | None = None,
        tz: str | tzinfo | None = None,
        **options: Unpack[CronKeywords[None]],
    ) -> Cron:
        """Return a decorator for a job that several processes start and one of them runs.

        The decorated function runs under a lease on ``name``; see :class:`CronJob`.

        The run keeps the name for at least ``at_least`` seconds from its start, even if the
        function is faster or the process dies. So a host whose clock is late does not run the job
        again. After ``at_most`` seconds the lease is lost.

        With ``once_per`` the job succeeds at most once in each ``"minute"``, ``"hour"``, ``"day"``,
        ``"week"`` or ``"month"``, by the database's clock, in UTC or in the time zone ``tz``
        ("Europe/Berlin", a :class:`zoneinfo.ZoneInfo`). With ``once_for`` it succeeds at most once
        for a slot that you name by any text: a date, a version. If a run fails, or its process
        dies, its slot stays open.

        dblock records how each run ended: :meth:`last_run`.
        """
        longest = check_max_hold(at_most, "at_most")
        check_keywords("cron", options)
        lease = self.lease(name, wait=wait, max_hold=longest, **options)
        return Cron(
            Job(
                self._database,
                lease,
                Terms(at_least, longest, once_per, once_for, tz),
                label=options.get("label"),
            )
        )

    def once(
        self,
        session: Borrowable,
        key: str,
        *,
        fingerprint: Any = None,
        keep: Seconds = 24 * 3600.0,
        wait: Seconds | None = None,
    ) -> Once:
        """Return a call that takes effect once for its idempotency key, in your transaction.

        See :class:`Once`. The key is exact, as names are, and all applications on this database
        share the keys: put the kind of call and the client into it, such as
        ``f"{customer}:order:{key}"``.

        ``fingerprint`` identifies the input of the call: bytes, text or a value that JSON can
        express. dblock keeps a hash of it. Another fingerprint under the same key raises KeyReused.
        dblock does not compare None.

        dblock keeps the record for ``keep`` seconds from the beginning of the call, at least a
        minute. Afterwards the key counts as new.

        If another transaction has begun a call with this key, this one waits for its end, at most
        ``wait`` seconds: None for ever, 0 not at all. Then you get InProgress. On SQLite it waits
        for any other writer.
        """
        return Once(self._database, session, key, fingerprint=fingerprint, keep=keep, wait=wait)

    def _policy(self, retry: RetryPolicy | None) -> RetryPolicy:
        if retry is None:
            return self.retry
        return check_instance("retry", retry, RetryPolicy).drawing(self._database.runtime.random)
