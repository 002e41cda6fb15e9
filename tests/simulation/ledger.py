"""What the statements did to the tables: each is compared with what was there before it."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dblock.dialects.tickets import TICKET, UNCALLED
from dblock.holding.lease_hold import LeaseHold
from dblock.protocol import commands
from dblock.protocol.term import FIRST_TERM
from dblock.protocol.tokens import is_shared
from tests.simulation.effects import Effects
from tests.simulation.loop import Actor, Loop, Violation
from tests.simulation.memory import ROUNDED, Memory
from tests.simulation.rates import Rates
from tests.simulation.semaphores import Semaphores
from tests.simulation.store import Store
from tests.simulation.tables import Committed, Row
from tests.simulation.transport import READING, Link, kind_of

#: Kinds after which the users' tables, or the record of runs, may be others.
_COMMITTING = frozenset({"commit", "begin_run", "end_run"})
#: With which a name is taken from a queue whose others stay in it, where they can be called.
_TAKING = frozenset({"grant", "grant_slot", "take", "pass_on"})
#: So long is the token in an entry of a queue, behind the ticket.
_TOKEN = 32


@dataclass(frozen=True, slots=True)
class Grant:
    """A name was granted: to whom, and when by the loop's time."""

    name: str
    actor: Actor
    at: float
    #: It was passed on by who had it before.
    passed: bool = False
    #: By which server.
    server: str = ""


_NEW = Row(None, 0, None, ())


def own(hold: LeaseHold) -> str:
    """Return the token of a hold that is nobody else's: readers share that of the hold."""
    return hold.reader or hold.token


class Ledger:
    """The tables as they are committed, and who did what to them."""

    def __init__(self, loop: Loop, store: Store, note: Callable[[str], None]) -> None:
        self.loop = loop
        self.store = store
        self.rows: dict[str, Row] = {}
        self.committed = Committed({}, {}, set(), {})
        #: What was granted, by its token; and who stands in a queue with a ticket.
        self.grants: dict[str, Grant] = {}
        self.tickets: dict[str, Actor] = {}
        #: For how long who has a token asked to have the name, the last time.
        self.ttls: dict[str, float] = {}
        #: Who wrote that it waits, by the id of that.
        self.waiters: dict[str, Actor] = {}
        #: Who was told that something could not be done, or nobody knows.
        self.unknowing: set[Actor] = set()
        #: When the row of a name was another the last time.
        self.changed: dict[str, float] = {}
        #: Tokens that are left to run out, as was asked for.
        self.left: set[str] = set()
        #: When a token was not on its name any more.
        self.gone: dict[str, float] = {}
        #: Those of them that are to expire when that was asked for, and for which it is.
        self.final: set[str] = set()
        self.leaving: set[str] = set()
        #: The tokens that others have released by force, and who does so just now.
        self.forced: set[str] = set()
        #: Tokens of clients that ask in any process.
        self.remote: set[str] = set()
        self.forcing: set[Actor] = set()
        #: How much of what a change by a key takes; and how much there was in the beginning.
        self.changes: dict[str, tuple[int, int]] = {}
        self.stock: dict[int, int] = {}
        #: The keys of changes that there was not enough for.
        self.refused: set[str] = set()
        #: In which slots a job has run, as its callers were told.
        self._succeeded: set[tuple[str, str]] = set()
        #: The runs that have been on record as successes.
        self._recorded: set[tuple[str, str]] = set()
        #: Called with a name that was granted, its row before, and by whom.
        self.granted: Callable[[str, Row, Actor | None], None] = lambda name, before, actor: None
        #: Called with a name that was passed on, and to whom.
        self.passed: Callable[[str, Actor], None] = lambda name, actor: None
        #: Called with a name that was given back, its token before, and by whom.
        self.freed: Callable[[str, str, Actor], None] = lambda name, token, actor: None
        #: Called with a token whose expiry is another.
        self.moved: Callable[[str, str], None] = lambda name, token: None
        #: Called with who has just said that it waits.
        self.seen: Callable[[Actor], None] = lambda actor: None
        #: What the holds of names, by their fences, have written; and when that was the last time.
        self.proclaimed: dict[tuple[str, int], str] = {}
        self.proclaimed_at = 0.0
        #: Who led when that was read: the fence and the value.
        self.leaders: list[tuple[int, str | None] | None] = []
        self._note = note
        self._fences: defaultdict[str, int] = defaultdict(int)
        self._forgot = store.forgot
        self._memory = Memory(store)
        #: What was done once, and behind gates.
        self.effects = Effects()
        #: The semaphores, as far as the tables tell of them.
        self.semaphores = Semaphores(loop)
        self.rates = Rates(store)

    def has(self, name: str, token: str) -> bool:
        """Whether a token is on a name, and has not expired."""
        row = self.rows.get(name)
        return row is not None and token in row.holders and not row.free(self.store.clock())

    def is_forgotten(self, token: str) -> bool:
        """Whether a grant came before the database forgot what it had committed."""
        grant = self.grants.get(token)
        return grant is not None and grant.at <= self.store.forgot

    def carried_out(self, link: Link | None, query: Any) -> None:
        """Look at the tables, a statement having been carried out."""
        kind = kind_of(query)
        if kind in ("read_leader", "write_value"):
            self._note_leader(query.command)
        if kind in READING:
            return
        if kind == "register" and link is not None and link.actor is not None:
            self.waiters[query.command.id] = link.actor
            self.seen(link.actor)
        forgot = self.store.forgot != self._forgot
        if forgot:
            self._memory.forget(self.rows, self.store.left)
            self._forgot, self.rows = self.store.forgot, self.store.left
        self.rates.carried_out(getattr(query, "command", None))
        self._note_ttls(getattr(query, "command", None))
        if kind == "set_limit" or forgot:
            self.semaphores.limit(self.store.limits())
        rows, now = self.store.rows(), self.store.clock()
        self._memory.look(rows, now)
        for name in self.rows.keys() - rows.keys():
            self._check_retired(name, self.rows[name], now)
        for name, row in rows.items():
            before = self.rows.get(name, _NEW)
            if row != before:
                self.changed[name] = self.loop.now
                for token in set(before.holders) - set(row.holders):
                    self.gone[token] = self.loop.now
                self._compare(name, before, row, now, None if link is None else link.actor, query)
        if kind in _COMMITTING:
            self._commit(rows)
        self.rows = rows

    def _note_leader(self, command: Any) -> None:
        """Take down who leads now, by what the lock table says and what this hold has written."""
        row = self.store.rows().get(command.name)
        if row is None or row.free(self.store.clock()):
            self.leaders.append(None)
            return
        this = command.name, row.fence
        if isinstance(command, commands.ReadLeader):
            self.leaders.append((row.fence, self.proclaimed.get(this)))
        elif (row.token, row.fence) == (command.token, command.fence):
            self.proclaimed[this], self.proclaimed_at = json.loads(command.value), self.loop.now

    def _note_ttls(self, command: object) -> None:
        """Take down for how long names are to be had."""
        match command:
            case commands.Grant() | commands.GrantSlot() | commands.Take() | commands.Join():
                self.ttls[command.token] = command.ttl
            case commands.Attach():
                self.ttls[command.new_token] = command.ttl
            case commands.JoinReaders():
                self.ttls[command.token] = command.ttl
                self.ttls[command.group] = max(command.ttl, self.ttls[command.group])
            case commands.Renew():
                for _, token, ttl in command.asked:
                    shared = self.ttls.get(token, 0.0) if is_shared(token) else 0.0
                    self.ttls[token] = max(ttl, shared)

    def is_there(self, ticket: str) -> bool:
        """Whether who stands in a queue can be called, as far as the database can know."""
        channels = {link.channel for link in self.store.links}
        return not ticket.startswith(UNCALLED) and any(
            channel is not None and ticket.startswith(channel) for channel in channels
        )

    def is_gone(self, ticket: str) -> bool:
        """Whether who stands in a queue could be called, and cannot any more."""
        return not ticket.startswith(UNCALLED) and not self.is_there(ticket)

    def succeeded(self, name: str, slot: str) -> None:
        """A caller was told that its run of a job was good."""
        if (name, slot) in self._succeeded:
            raise Violation(f"two are told that they have run {name!r} in {slot!r}")
        self._succeeded.add((name, slot))

    def is_recorded(self, name: str, slot: str) -> bool:
        """Whether a run is, or was, on record as a success."""
        return (name, slot) in self._recorded

    def _compare(
        self, name: str, before: Row, row: Row, now: float, actor: Actor | None, query: Any
    ) -> None:
        """Promises 1, 2, 4 and 5, by the database's clock."""
        if row.fence < before.fence:
            raise Violation(f"the fence of {name!r} fell from {before.fence} to {row.fence}")
        for ticket in row.tickets:
            if ticket not in before.tickets and actor is not None:
                self.tickets.setdefault(ticket, actor)
        tokens = [ticket[TICKET : TICKET + _TOKEN] for ticket in row.tickets if ticket[TICKET:]]
        if len(tokens) > len(set(tokens)):
            raise Violation(f"somebody stands in the queue of {name!r} twice")
        if row.fence > before.fence and row.token is not None:
            self._note(f"{name} to {row.fence}")
            passed = kind_of(query) == "pass_on"
            if row.fence <= self._fences[name]:
                raise Violation(f"{name!r} was granted with the fence {row.fence} again")
            self._fences[name] = row.fence
            self._memory.check_grant(name, now)
            self._check_term(name, row, now, FIRST_TERM if passed else math.inf)
            if kind_of(query) in _TAKING:
                self._check_queue(name, before, row, row.token, passed)
            if passed:
                self._ours(name, before.token, actor, query)
                actor = self._waiter(before, row.token)
                if actor is not None:
                    self.passed(name, actor)
            elif not before.free(now):
                raise Violation(f"{name!r} was taken while it was held")
            if actor is not None:
                self.semaphores.granted(name)
                self.grants[row.token] = Grant(
                    name, actor, self.loop.now, passed, self.store.identity
                )
            self.granted(name, before, actor)
            return
        if is_shared(before.token) and row.token in (None, before.token):
            self._shared(name, before, row, now, actor, query)
            return
        if row.token not in (None, before.token) and kind_of(query) == "attach":
            self._attached(name, before, row, now, actor, query)
            return
        if row.token not in (None, before.token):
            raise Violation(f"{name!r} has another holder and the same fence, {row.fence}")
        if row.token is not None and row.expires != before.expires:
            self._ours(name, before.token, actor, query)
            self._check_term(name, row, now)
            if before.free(now):
                raise Violation(f"{name!r} was renewed after it had expired")
            self.moved(name, row.token)
        elif row.token is None and before.token is not None:
            self._note(f"{name} free")
            self._ours(name, before.token, actor, query)
            if actor is not None:
                self.freed(name, before.token, actor)

    def _shared(
        self, name: str, before: Row, row: Row, now: float, actor: Actor | None, query: Any
    ) -> None:
        """Promise 20: each reader comes by itself, and goes by itself; the last one frees it."""
        assert before.token is not None
        came, went = set(row.holders) - set(before.holders), set(before.holders) - set(row.holders)
        if (row.token, row.expires, row.listed) == (before.token, before.expires, before.listed):
            return
        if actor is not None and before.token not in str(query.params):
            raise Violation(f"{actor.name} changed {name!r} without its readers' token")
        if row.token is None:
            self._note(f"{name} free")
        if actor in self.forcing:
            self.forced |= {before.token, *went}
            return
        for token in came:
            if kind_of(query) != "join_readers" or before.free(now):
                raise Violation(f"{name!r} was joined after it had expired")
            self._note(f"{name} joined")
            if actor is not None:
                self.grants[token] = Grant(name, actor, self.loop.now, False, self.store.identity)
        if len(went) > 1:
            raise Violation(f"{len(went)} readers of {name!r} have gone at once")
        for token in went:
            holder = self.grants[token].actor
            if actor is not None and holder.client is not actor.client:
                raise Violation(f"{actor.name} ended the share of {holder.name} in {name!r}")
            if actor is not None:
                self.freed(name, token, actor)
        if row.token is not None and row.expires != before.expires:
            assert row.expires is not None
            assert before.expires is not None
            self._check_term(name, row, now)
            if before.free(now):
                raise Violation(f"{name!r} was renewed after it had expired")
            if row.expires < before.expires:
                raise Violation(f"{name!r} runs out sooner for its readers")
            self.moved(name, row.token)

    def _attached(
        self, name: str, before: Row, row: Row, now: float, actor: Actor | None, query: Any
    ) -> None:
        """A hold goes on elsewhere: who had it before has let it go, and guards nothing with it."""
        assert row.token is not None
        self._note(f"{name} attached")
        if before.token is None or before.token not in str(query.params):
            raise Violation(f"{name!r} was attached without its holder's token")
        if before.free(now):
            raise Violation(f"{name!r} was attached after it had expired")
        if self.store.locked(name) and not self.store.one_writer:
            raise Violation(f"{name!r} was attached while a transaction is guarded with it")
        if row.fence <= self.store.epoch():
            raise Violation(f"{name!r} was attached with a fence of before a failover")
        self._check_term(name, row, now)
        holder = self.grants[before.token].actor
        self.freed(name, before.token, holder)
        self.grants[row.token] = Grant(
            name, actor or holder, self.loop.now, False, self.store.identity
        )

    def _check_retired(self, name: str, row: Row, now: float) -> None:
        """Promise 2: only the row of a name that nobody uses is deleted."""
        self._note(f"{name} retired")
        if not row.free(now):
            raise Violation(f"{name!r} was retired while it was held")
        if row.tickets:
            raise Violation(f"{name!r} was retired while it was waited for")

    def _check_term(self, name: str, row: Row, now: float, most: float = math.inf) -> None:
        """Promise 5: no lease lasts longer than its TTL, nor one that was passed on than that."""
        most = min(most, self.ttls[row.token or ""])
        if row.expires is not None and row.expires > now + most + ROUNDED:
            raise Violation(f"{name!r} is held for {row.expires - now:.3f} s, not {most:g} s")

    def _check_queue(self, name: str, before: Row, row: Row, token: str, passed: bool) -> None:
        """Promise 10: the living keep their places, and nobody waits for who is gone."""
        in_front = True
        for ticket in before.tickets:
            there, stays = self.is_there(ticket), ticket in row.tickets
            if ticket[TICKET:].startswith(token):
                in_front = False
                if passed and not there:
                    raise Violation(f"{name!r} is passed on to who is gone")
                if stays:
                    raise Violation(f"who has got {name!r} waits for it yet")
            elif there and not stays:
                raise Violation(f"who waits for {name!r} loses its place to who has got it")
            elif in_front and stays and not there:
                raise Violation(f"who is gone is waited for yet in the queue of {name!r}")

    def _waiter(self, row: Row, token: str) -> Actor | None:
        """Return who stands in a queue to get the name with a token."""
        entries = (entry for entry in row.tickets if entry[TICKET:].startswith(token))
        return next((self.tickets.get(entry) for entry in entries), None)

    def _ours(self, name: str, token: str | None, actor: Actor | None, query: Any) -> None:
        """Only the holder releases and renews, with its token; or force does."""
        if actor is None or token is None or token in self.forced:
            return
        if token not in str(query.params):
            raise Violation(f"{actor.name} changed {name!r} without its holder's token")
        if actor in self.forcing:
            self.forced.add(token)
        elif token in self.remote:
            return
        elif (holder := self.grants[token].actor).client is not actor.client:
            raise Violation(f"{actor.name} changed what {holder.name} holds, {name!r}")

    def _commit(self, rows: dict[str, Row]) -> None:
        """Promise 6: whoever wrote under a guard had the name until it was committed."""
        before, self.committed = self.committed, self.store.committed()
        self.effects.look(self.committed, self.store.clock())
        self._recorded |= {run for run, status in self.committed.runs.items() if status == 0}
        for id, (name, fence) in self.committed.written.items():
            if id in before.written:
                continue
            self._note(f"{name} written {fence}")
            if rows[name].fence != fence:
                raise Violation(
                    f"{name!r} was written with {fence} when {rows[name].fence} had been granted"
                )
        for id, amount in self.committed.stock.items():
            taken = sum(
                self.changes[key][1] for key in self.committed.applied if self.changes[key][0] == id
            )
            if amount != self.stock[id] - taken:
                raise Violation(f"{amount} are left of {self.stock[id]} after {taken} were taken")
            if amount < 0:
                raise Violation(f"the stock {id} fell below its floor: {amount}")
