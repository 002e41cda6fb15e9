"""A hold that is known by its token alone, which only the client that made the token remembers.

::

    take ── granted ────────────────────────────────────────────────────> Held
     └── refused, or no reply ── read ── the token holds it ── renew it ─> Held, repeated
                                  ├── another token holds it ────────────> Refused
                                  └── no answer ─────────────────────────> OutcomeUnknown

A client that does not know the outcome of a call asks again with the same token; whichever call the
server executed made the hold. So this neither replaces the token by another nor releases it, unless
the client asks for a release: an earlier call may still be under way, and would end the hold of a
later call.
"""

from __future__ import annotations

from ..errors import DBLockError, LockLost, OutcomeUnknown, Unavailable
from .attempt import Attempt
from .commands import Renew
from .epoch import consult, ended
from .exchange import Exchange
from .inspect import look, look_from, loss_by_token
from .lease import Held, Refused, ReleaseRequest
from .release import release
from .retry import PAUSE
from .sharing import SharedAttempt
from .slots import SlotAttempt
from .state import LockRow, Renewal
from .steps import Procedure, Reply, Sleep
from .term import Term
from .tokens import is_shared


class TokenAttempt(Attempt):
    """The progress of one take of a lease."""

    #: The token was found to hold the name already.
    repeated = False

    def ask(self) -> Procedure[Held | None]:
        """Ask without waiting for a holder."""
        return self.run(None)

    def find_hold(self) -> Procedure[Held | None]:
        """Read whether the token holds the name already."""
        yield from self.look(None)
        return (yield from self._found())

    def _found(self) -> Procedure[Held | None]:
        held = yield from super()._found()
        self.repeated = held is not None
        return held

    def _give_back(self, why: DBLockError | None = None) -> Procedure[object]:
        if why is None:
            raise late(self.request.name, self.request.ttl)
        if not isinstance(why, LockLost):
            raise self.told(why) from why.__cause__
        yield from ()
        return None


class TokenSharedAttempt(TokenAttempt, SharedAttempt):
    """The progress of one take of a shared lease. It joins readers, and never begins a group.

    A list of readers is valid while its group's token holds the name. A client may come back with
    an old token: as a group's token it would make a list of readers valid again that have left.
    """

    def ask(self) -> Procedure[Held | None]:
        return (yield from self._join(None)) if self._joinable else None


class TokenSlotAttempt(TokenAttempt, SlotAttempt):
    """The progress of one take of a slot. It first looks for a slot that the token holds already:
    the statement that takes any slot would take a second one."""

    @property
    def promising(self) -> bool:
        return super().promising or self._rowless is not None or self.slots.limit is None

    def ask(self) -> Procedure[Held | None]:
        return SlotAttempt.take(self)

    def find_hold(self) -> Procedure[Held | None]:
        held = yield from super().find_hold()
        if held is None:
            self._check_limit()
        return held


def late(name: str, ttl: float) -> OutcomeUnknown:
    """Return the error for a grant whose reply came after the holder's deadline."""
    return OutcomeUnknown(
        f"{name!r} was granted, and the reply came when most of the {ttl:g} s were over. Take it "
        "again with the same token: the database knows whether it has the name yet",
        name=name,
    )


def take(attempt: TokenAttempt, *, look_first: bool) -> Procedure[Held | Refused]:
    """Take a name without waiting for its holder, or find that the token holds it.

    With ``look_first`` another token most likely holds the name; one read finds that out.
    """
    held = None
    if look_first:
        held = yield from attempt.find_hold()
        if held is None and not attempt.promising:
            return Refused(attempt.seen.state, attempt.closed)
    if held is None:
        held = yield from attempt.ask()
    if held is not None:
        return held
    if attempt.unsure:
        raise attempt.unknown(
            Unavailable("a statement may be under way on a session that dblock could not end")
        )
    if attempt.timed_out is not None and attempt.seen.position.free:
        raise attempt.told(attempt.timed_out)
    return Refused(attempt.seen.state, attempt.closed)


def renew(exchange: Exchange, token: str, ttl: float) -> Procedure[Held]:
    """Renew the hold of a token. Raises LockLost if it has none.

    A renewal can be repeated, whatever its outcome was. Until the deadline this retries an
    unreachable database and a locked row.
    """
    name = exchange.name
    while True:
        hold = token
        if is_shared(token):
            hold = yield from _group(exchange, token)
        reply = yield from exchange.ask_or_explain(Renew((Renewal(name, hold, ttl),)))
        fence = reply.answer.get(hold)
        if fence is not None:
            return Held(fence, Term(reply.sent, ttl), reply.server)
        state = yield from look(exchange)
        loss = yield from _why_lost(exchange, state, token, ttl)
        if loss is not None:
            raise loss
        if exchange.over:
            raise Unavailable(
                f"{name!r} could not be renewed, because its row is in use: try again", name=name
            )
        exchange.now = (yield Sleep(PAUSE)).now


def release_by_token(exchange: Exchange, token: str, *, guarded: bool = False) -> Procedure[None]:
    """Release the hold of a token, or its share in a hold. Raises LockLost if it has none.

    ``guarded`` as in :class:`.ReleaseRequest`.
    """
    hold, reader = token, None
    if is_shared(token):
        hold, reader = (yield from _group(exchange, token)), token
    request = ReleaseRequest(exchange.name, hold, None, reader, guarded=guarded)
    yield from release(exchange, request)


def find(exchange: Exchange, token: str) -> Procedure[Held]:
    """Return the hold of a token. Raises LockLost if it has none."""
    row, reply = yield from _look(exchange, token)
    assert row.remaining is not None
    return Held(row.fence, Term(reply.sent, row.remaining), reply.server)


def _group(exchange: Exchange, token: str) -> Procedure[str]:
    """Return the token of the hold that a reader shares. Raises LockLost if it shares none."""
    row, _ = yield from _look(exchange, token)
    assert row.token is not None
    return row.token


def _look(exchange: Exchange, token: str) -> Procedure[tuple[LockRow, Reply[list[LockRow]]]]:
    """Read the row of a name that a token holds. Raises LockLost if it does not hold the name."""
    state, reply = yield from look_from(exchange)
    loss = loss_by_token(state, exchange.name, token)
    if loss is not None:
        raise loss
    assert state is not None
    return state, reply


def _why_lost(
    exchange: Exchange, state: LockRow | None, token: str, ttl: float
) -> Procedure[LockLost | None]:
    """Return why a token does not hold a name; None if it does, and may renew it again."""
    loss = loss_by_token(state, exchange.name, token)
    if loss is not None or not exchange.dialect.traits.has_witness:
        return loss
    assert state is not None
    witness, *_ = yield from consult(exchange, ttl, patience=0.0)
    return ended(exchange.name, state.fence, witness)
