"""Whether the lock table may be believed: the witness, and the epoch that it stands for.

::

    consult:  look ── there ── knows of the TTL ──────────────> Witness
               │        └───── does not: announce it ── record it ── look
               └── missing, or its pause too long: write it anew ── look

A database that crashes or fails over may forget leases. Then the witness is missing, and whoever
finds out writes it anew: with a new epoch, and nothing granted until the longest TTL is over,
unless no lease was lost. A pause that is longer than that was begun while the database's clock was
ahead; whoever sees it cuts it short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import LockLost, Unsupported
from .explain import explain
from .faults import Fault, StatementError
from .retry import AWAY, PASSING, retry, retry_or_raise
from .state import Witness
from .steps import Procedure

if TYPE_CHECKING:
    from .statements import Statements

# How often to look again: after each time somebody, if not we, has mended it.
ROUNDS = 10


class Consulted(NamedTuple):
    """The witness as it was at a moment between ``sent`` and ``now``.

    ``mended`` tells that it was missing, or knew too little.
    """

    witness: Witness
    mended: bool
    sent: float
    now: float

    @property
    def opens(self) -> float:
        """When something may be granted, at the earliest."""
        return self.sent + self.witness.pause


def consult(
    dialect: Statements, ttl: float, patience: float, now: float, within: float | None = None
) -> Procedure[Consulted]:
    """Return the witness, once it is there and knows of TTLs as long as ``ttl``.

    Every statement of this can be repeated. Raises StatementError.
    """
    for number in range(ROUNDS):
        query = dialect.witness()
        reply = yield from retry(query, patience, now, AWAY | PASSING, within)
        witness, now = query.read(reply), reply.now
        if witness is not None and witness.longest_ttl >= ttl:
            return Consulted(witness, number > 0, reply.sent, now)
        if witness is None:
            mend = [dialect.write_witness()]
        else:
            # What is recorded is granted at once, by everybody, and a grant in an UNLOGGED table
            # waits for no standby. So the standbys that commits wait for are told first.
            mend = [dialect.announce_ttl(ttl), dialect.record_ttl(ttl)]
        for statement in mend:
            now = (yield from retry(statement, patience, now, AWAY | PASSING, within)).now
    raise StatementError(
        Fault.SCHEMA, "the witness cannot be written: its table has to be UNLOGGED"
    )


def pause(
    dialect: Statements, longest: float | None, patience: float, now: float
) -> Procedure[float]:
    """Begin a new epoch, whatever was lost; return the seconds until something is granted.

    Every lease of before is lost, and none is out for more than ``longest`` seconds. Raises
    Unsupported where there is no witness.
    """
    if not dialect.has_witness:
        raise Unsupported(
            f"{dialect.name} has no witness, and so no pause: dblock cannot tell all processes "
            "there to wait. Stop all programs that use dblock until the longest lease has expired"
        )
    begun = dialect.distrust(longest)
    reply = yield from retry_or_raise(dialect, begun, None, patience, now)
    try:
        found = yield from consult(dialect, 0.0, patience, reply.now)
    except StatementError as failure:
        raise explain(dialect, failure, harmless=True) from failure.__cause__
    return max(0.0, found.opens - found.now)


def ended(name: str, fence: int, witness: Witness) -> LockLost | None:
    """Return the loss of a hold whose epoch is over; None if it is not."""
    if fence > witness.epoch:
        return None
    return failed_over(name) if witness.cause == "failover" else crashed(name)


def failed_over(name: str) -> LockLost:
    """Return the loss of a lease that another server granted.

    What is replicated may be older than what that server told, to others too.
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
