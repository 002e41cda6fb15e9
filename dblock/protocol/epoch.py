"""The witness and its epoch: whether the lock table still has every lease that was granted.

::

    consult:  read ── there ── covers the TTL ──────────────────> Witness
               │        └───── does not: announce it ── record it ── read
               └── missing, or its pause too long: write a new one ── read

A database that crashes or fails over may lose leases. Then the witness is missing, and the first
process that notices writes a new one. Unless no lease was lost, the new witness begins a new epoch,
and nothing is granted until the longest TTL is over. A pause longer than that began while the
database's clock was ahead; the first process that reads it shortens it.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import LockLost, Unsupported
from .commands import AnnounceTtl, Command, Distrust, ReadWitness, RecordTtl, WriteWitness
from .exchange import Exchange
from .faults import Fault, StatementError
from .state import Witness
from .steps import Procedure

# The number of reads before this gives up. After each of them a process has repaired the witness:
# we or another.
ROUNDS = 10


class Consulted(NamedTuple):
    """The witness as it was at a moment after ``sent``.

    ``mended`` says that it was missing, or did not cover the TTL, and was repaired.
    """

    witness: Witness
    mended: bool
    sent: float

    @property
    def opens(self) -> float:
        """The earliest time at which a lease may be granted, by our clock."""
        return self.sent + self.witness.pause


def consult(
    exchange: Exchange, ttl: float = 0.0, *, patience: float | None = None
) -> Procedure[Consulted]:
    """Return the witness as :func:`ask_witness` does, or raise the error for a failure."""
    try:
        return (yield from ask_witness(exchange, ttl, patience=patience))
    except StatementError as failure:
        raise exchange.explain(failure, harmless=True) from failure.__cause__


def ask_witness(
    exchange: Exchange, ttl: float, *, patience: float | None = None, within: float | None = None
) -> Procedure[Consulted]:
    """Return the witness, once it exists and covers TTLs up to ``ttl``.

    Every statement of this can be repeated. Raises StatementError.
    """
    for number in range(ROUNDS):
        reply = yield from exchange.ask(ReadWitness(), patience=patience, within=within)
        witness = reply.answer
        if witness is not None and witness.longest_ttl >= ttl:
            return Consulted(witness, number > 0, reply.sent)
        mend: list[Command[int]] = [WriteWitness()]
        if witness is not None:
            # Every process grants a recorded TTL at once, and a grant in an UNLOGGED table waits
            # for no standby. So the announcement is committed first: it reaches the standbys that
            # commits wait for before any process grants the TTL.
            mend = [AnnounceTtl(ttl), RecordTtl(ttl)]
        for statement in mend:
            yield from exchange.ask(statement, patience=patience, within=within)
    failure = StatementError(
        Fault.SCHEMA, "the witness cannot be written: its table has to be UNLOGGED"
    )
    failure.now = exchange.now
    raise failure


def pause(exchange: Exchange, longest: float | None) -> Procedure[float]:
    """Begin a new epoch, even if no lease was lost; return the seconds until grants are allowed.

    All present leases are lost. ``longest`` is the number of seconds within which each of them
    expires. Raises Unsupported on a database without a witness.
    """
    dialect = exchange.dialect
    if not dialect.traits.has_witness:
        raise Unsupported(
            f"{dialect.name} has no witness, and so no pause: dblock cannot tell all processes "
            "there to wait. Stop all programs that use dblock until the longest lease has expired"
        )
    yield from exchange.ask_or_explain(Distrust(longest))
    found = yield from consult(exchange)
    return max(0.0, found.opens - exchange.now)


def ended(name: str, fence: int, witness: Witness) -> LockLost | None:
    """Return the loss of a hold whose epoch is over; None if it is not."""
    if fence > witness.epoch:
        return None
    return failed_over(name) if witness.cause == "failover" else crashed(name)


def failed_over(name: str) -> LockLost:
    """Return the loss of a lease that another server granted.

    The replica may be older than what the other server replied, to other clients too.
    """
    return LockLost(
        f"another server has taken the place of the one that granted the lease on {name!r}",
        name=name,
        reason="failover",
    )


def crashed(name: str) -> LockLost:
    """Return the loss of a lease that was in an UNLOGGED table."""
    return LockLost(
        f"the lease on {name!r} was lost in a crash of the database: its table is volatile",
        name=name,
        reason="crash",
    )
