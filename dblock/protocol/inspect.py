"""Reading names; and why a lease is lost, from the state of its name."""

from __future__ import annotations

from ..errors import DBLockError, LockLost
from ..lock_state import printable
from .commands import Look
from .epoch import consult, ended
from .exchange import Exchange
from .lease import Held
from .state import LockRow
from .steps import Procedure, Reply


def look(exchange: Exchange, *, patience: float | None = None) -> Procedure[LockRow | None]:
    """Read the state of the exchange's name."""
    state, _ = yield from look_from(exchange, patience=patience)
    return state


def look_from(
    exchange: Exchange, *, patience: float | None = None
) -> Procedure[tuple[LockRow | None, Reply[list[LockRow]]]]:
    """Read as :func:`look` does, and return the reply too."""
    reply = yield from exchange.ask_or_explain(Look((exchange.name,)), patience=patience)
    states = reply.answer
    return (states[0] if states else None), reply


def why_lost(exchange: Exchange, token: str, held: Held | None) -> Procedure[LockLost | None]:
    """Read why a statement did not find its hold; None if the hold exists, and only its row was
    locked.

    ``held`` is None if the caller knows only the token of the hold.
    """
    name = exchange.name
    try:
        state = yield from look(exchange, patience=0.0)
        if held is None:
            return loss_by_token(state, name, token)
        loss = loss_of(state, name, token, held, exchange.now)
        if loss is None or not exchange.dialect.traits.has_witness:
            return loss
        witness, *_ = yield from consult(exchange, patience=0.0)
    except DBLockError as error:
        return LockLost(
            f"{name!r} is lost, and dblock could not find out why: {error}",
            name=name,
            reason="unknown",
        )
    return ended(name, held.fence, witness) or loss


def loss_of(
    state: LockRow | None, name: str, token: str, held: Held, now: float
) -> LockLost | None:
    """Return why a hold is lost, from the last known state of its name; None if it is not lost.

    ``now`` is a time after that state was read.
    """
    if state is None:
        if held.term.over(now):  # the row of a name that nobody uses any more may be deleted
            return expired(name)
        return LockLost(f"{name!r} was removed from the lock table", name=name, reason="forced")
    if state.token == token:  # a member of a quorum may have granted a larger fence than the hold's
        return None if state.held else expired(name)
    if state.fence != held.fence:
        # The term's deadline lies before the expiry, by any clock that runs about as fast as ours.
        if not held.term.over(now - _age(state)):
            return LockLost(
                f"the lease on {name!r} was taken by another before it expired: it was released by "
                f"force, or the database's clock was set forward; {followed(state, held.fence)}",
                name=name,
                reason="forced",
            )
        return taken_over(state, held.fence)
    if state.token is None:
        return LockLost(f"{name!r} was released by force", name=name, reason="forced")
    return attached(state)


def loss_by_token(state: LockRow | None, name: str, token: str) -> LockLost | None:
    """Return why a token does not hold a name, from the last known state; None if it does.

    The fence of its hold is unknown.
    """
    if state is None:
        return LockLost(f"no lease on {name!r} is known here", name=name, reason="unknown")
    if token in state.members:
        return None if state.held else expired(name)
    if state.token is None:
        return LockLost(
            f"{name!r} is free: the hold with this token was released, by force too, or never was",
            name=name,
            reason="released",
        )
    return LockLost(
        f"the token does not hold {name!r}: its hold was released or expired, or never was; the "
        f"name is now {state.told().describe()}",
        name=name,
        reason="taken over",
    )


def attached(state: LockRow) -> LockLost:
    """Return the loss of a hold that another process has attached: it goes on there, or expired."""
    if not state.held:
        holder = printable(state.owner or "an unnamed holder")
        return LockLost(
            f"the hold of {state.name!r} was attached by {holder}, and expired there: that process "
            "died, or could not renew it. The name is free",
            name=state.name,
            reason="expired",
        )
    return LockLost(
        f"another process has attached the hold of {state.name!r}: it is now "
        f"{state.told().describe()}",
        name=state.name,
        reason="attached",
    )


def taken_over(state: LockRow, fence: int) -> LockLost:
    """Return the loss of a lease whose name was granted again since."""
    return LockLost(
        f"the lease on {state.name!r} was taken over after it expired: {followed(state, fence)}",
        name=state.name,
        reason="taken over",
    )


def followed(state: LockRow, fence: int) -> str:
    """Describe the holds of a name after a fence."""
    return f"fence {fence} was followed by {state.fence}; it is now {state.told().describe()}"


def _age(state: LockRow) -> float:
    """Return the seconds since the last grant, by the database's clock; 0 if that is unknown."""
    if state.acquired_at is None or state.expires_at is None or state.remaining is None:
        return 0.0
    return (state.expires_at - state.acquired_at).total_seconds() - state.remaining


def expired(name: str, why: str = "without being renewed in time") -> LockLost:
    """Return the loss of a lease that expired."""
    return LockLost(f"the lease on {name!r} expired {why}", name=name, reason="expired")
