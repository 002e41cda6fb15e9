"""Renewing leases: one hold by its holder, or many holds by the keeper.

Both use the same statement. It never waits for a row, and changes no row that has expired or has
another token. So it can be repeated, whatever the last try did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DBLockError, LockLost
from .commands import Command, Look, Renew
from .epoch import ask_witness, ended, failed_over
from .exchange import Exchange
from .explain import explain
from .faults import Fault, StatementError
from .inspect import expired, loss_of
from .lease import Held
from .retry import AGAIN, PASSING, PAUSE, UNREACHED, end_lost
from .state import LockRow, Renewal
from .steps import Execute, Procedure, Sleep
from .term import Term

if TYPE_CHECKING:
    from .dialect import AbstractDialect


@dataclass(frozen=True, slots=True)
class Asked:
    """A hold to be renewed."""

    renewal: Renewal
    held: Held


@dataclass(frozen=True, slots=True)
class RenewalFailed:
    """The renewal failed, or its outcome is unknown; the lease may still be held."""

    failure: StatementError

    def __post_init__(self) -> None:
        # The failure is stored, and the frames of its traceback would keep the handle alive.
        self.failure.__traceback__ = None

    @property
    def away(self) -> bool:
        """Whether the database could not be reached, or could serve no client."""
        return self.failure.fault in UNREACHED | {Fault.REFUSED}


#: The outcome of a renewal.
Renewed = Term | LockLost | RenewalFailed


def renew_all(
    dialect: AbstractDialect, asked: Sequence[Asked], within: float | None = None
) -> Procedure[tuple[list[Renewed], float]]:
    """Renew many holds in one round trip; return the outcome of each, in their order, and the time.

    This waits for nothing but replies, for each up to ``within`` seconds; the caller retries failed
    renewals. If one busy row fails the whole statement, the batch is halved, down to the row
    itself.
    """
    outcomes: dict[Asked, Renewed] = {}
    batches, replaced, mended = [list(asked)], False, False
    lost: list[Command[bool]] = []
    now = 0.0
    while batches:
        batch = batches.pop()
        try:
            yield from end_lost(lost, within)
            command = Renew(_renewals(batch))
            reply = yield Execute(command, within)
        except StatementError as failure:
            now = failure.now
            if failure.fault is Fault.DISCONNECTED and not replaced:
                replaced = True  # the connection may have died while it was idle
                lost += [] if failure.end is None else [failure.end]
                batches.append(batch)
            elif failure.fault is Fault.BUSY and len(batch) > 1 and not dialect.traits.one_writer:
                half = len(batch) // 2
                batches += [batch[half:], batch[:half]]
            else:
                outcomes.update((hold, RenewalFailed(failure)) for hold in batch)
                if failure.fault not in PASSING:
                    break  # the other batches would fail in the same way
            continue
        renewed, now = reply.answer, reply.now
        refused = []
        for hold in batch:
            if hold.held.elsewhere(reply.server):
                outcomes[hold] = failed_over(hold.renewal.name)
            elif hold.renewal.token in renewed:
                outcomes[hold] = Term(reply.sent, hold.renewal.ttl)
            else:
                refused.append(hold)
        if refused and dialect.traits.has_witness and not mended:
            refused, mended, now = yield from _consult(dialect, refused, outcomes, now, within)
            if mended:
                batches.append(refused)
                continue
        if refused:
            losses, now = yield from _why_not(dialect, refused, within)
            outcomes.update(losses)
    rest = RenewalFailed(StatementError(Fault.UNREACHABLE, "the renewals before it failed"))
    return [outcomes.get(hold, rest) for hold in asked], now


def _renewals(batch: Sequence[Asked]) -> tuple[Renewal, ...]:
    """Return one renewal for each row, with the longest TTL of the readers that share its hold."""
    longest: dict[tuple[str, str], Renewal] = {}
    for hold in batch:
        renewal = hold.renewal
        known = longest.setdefault((renewal.name, renewal.token), renewal)
        if known.ttl < renewal.ttl:
            longest[renewal.name, renewal.token] = renewal
    return tuple(longest.values())


def _consult(
    dialect: AbstractDialect,
    refused: Sequence[Asked],
    outcomes: dict[Asked, Renewed],
    now: float,
    within: float | None,
) -> Procedure[tuple[list[Asked], bool, float]]:
    """Return the holds whose epoch is not over, whether the witness has refused them, and the
    time."""
    longest = max(hold.renewal.ttl for hold in refused)
    # No retries: the keeper tries again.
    exchange = Exchange(dialect, name="", start=now, wait=0.0, timeout=0.0, now=now)
    try:
        witness, mended, _ = yield from ask_witness(exchange, longest, within=within)
    except StatementError as failure:
        outcomes.update((hold, RenewalFailed(failure)) for hold in refused)
        return [], False, failure.now
    rest = []
    for hold in refused:
        loss = ended(hold.renewal.name, hold.held.fence, witness)
        if loss is None:
            rest.append(hold)
        else:
            outcomes[hold] = loss
    return rest, mended and bool(rest), exchange.now


def _why_not(
    dialect: AbstractDialect, refused: Sequence[Asked], within: float | None
) -> Procedure[tuple[dict[Asked, Renewed], float]]:
    """Read, in one round trip, why the renewing statement did not find these holds; return the
    time too."""
    try:
        command = Look(tuple(dict.fromkeys(hold.renewal.name for hold in refused)))
        reply = yield Execute(command, within)
    except StatementError as failure:
        return {hold: RenewalFailed(failure) for hold in refused}, failure.now
    states: dict[str, LockRow] = {state.name: state for state in reply.answer}
    busy = RenewalFailed(StatementError(Fault.BUSY, "its row is in use"))
    losses: dict[Asked, Renewed] = {
        hold: loss_of(states.get(name), name, token, hold.held, reply.now) or busy
        for hold in refused
        for name, token, _ in [hold.renewal]
    }
    return losses, reply.now


def confirm(exchange: Exchange, asked: Asked) -> Procedure[Term | DBLockError]:
    """Renew a hold that was found after the reply to its grant was lost.

    The grant may be committed on this server alone: PostgreSQL commits first and waits for its
    standbys then, and if that wait is cut off the commit stays. The renewal follows the grant in
    the same log, so a standby that has the renewal has the grant too. Return the new term, or the
    error that prevented it: LockLost when the hold is over.
    """
    until = exchange.now + exchange.reach
    while True:
        (outcome,), exchange.now = yield from renew_all(exchange.dialect, [asked])
        if not isinstance(outcome, RenewalFailed):
            return outcome
        exchange.now = (yield Sleep(PAUSE)).now
        if exchange.now >= until or outcome.failure.fault not in AGAIN:
            return exchange.explain(outcome.failure, harmless=True)


def renew(dialect: AbstractDialect, asked: Asked, start: float) -> Procedure[Term]:
    """Renew a hold, and retry until the holder's own deadline, which alone limits it.

    Raises LockLost when the hold is over.
    """
    now, term = start, asked.held.term
    away: str | None = None
    while not term.over(now):
        (outcome,), now = yield from renew_all(dialect, [asked])
        if isinstance(outcome, LockLost):
            raise outcome
        if isinstance(outcome, Term):
            if term.over(now):
                break  # renewed, but the reply came after the holder's deadline
            return outcome
        failure = outcome.failure
        if failure.fault not in AGAIN:
            raise explain(dialect, failure, asked.renewal.name) from failure.__cause__
        away = str(failure) if outcome.away else None
        now = (yield Sleep(PAUSE)).now
    raise expired(asked.renewal.name) if away is None else unreachable(asked.renewal.name, away)


def unreachable(name: str, said: str) -> LockLost:
    """Return the loss of a lease that expired because dblock could not reach the database."""
    return LockLost(
        f"the lease on {name!r} expired, because dblock could not reach the database to renew it: "
        f"{said}",
        name=name,
        reason="unreachable",
    )
