"""Which databases are the members of a quorum, and which of them vote now.

Each member has a record: the members of the quorum by their identities, and its own state::

    none ── no member has begun ── new ── all are new, or one votes ───────────────────> joined
      │                                                                                    │
      └── others vote: it has lost its record ──> pausing <── its server was started again ┘
                                                     │
                                 after the pause, above the others' fences ──> joined

A member that was started again may have an older copy of its tables. What it granted may still be
held, for the longest TTL at most. So it pauses for that time. Then every fence that it has
forgotten is known to other members: it reads the largest of theirs and begins above that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .ballot import majority
from .commands import RaiseFences, RaiseFloor, ReadMember, WriteMember
from .epoch import consult
from .exchange import Exchange
from .state import Member
from .steps import Procedure

NEW, PAUSING = "new", "pausing"


class Rewrite(NamedTuple):
    """Replace a member's record; before that, raise all its fences to ``fence``."""

    before: str | None
    after: str
    longest: int
    pause: float = 0.0
    fence: int = 0


def list_of(identities: Sequence[str]) -> str:
    """Return the list of the members as the records have it."""
    return ",".join(sorted(identities))


def listed(member: Member) -> str | None:
    """Return the list in a member's record; None without a record."""
    return None if member.value is None else member.value.split(" ")[0]


def joined(members: str, instance: str) -> str:
    """Return the record of a member that votes, as :attr:`.MemberStatements.record` makes it."""
    return f"{members} {instance}"


def state_of(members: str, member: Member) -> str:
    """Return a member's state in a word, for people too."""
    if member.value is None:
        return "none"
    _, _, rest = member.value.partition(" ")
    word, _, instance = rest.partition(" ")
    if rest == NEW:
        return NEW
    if word == PAUSING:
        return PAUSING if instance == member.instance else "restarted"
    return "joined" if member.value == joined(members, member.instance) else "restarted"


def votes(members: str, member: Member, ttl: float) -> bool:
    """Return whether a member votes now for leases of ``ttl`` seconds."""
    asked = round(ttl * 1000)
    joined = state_of(members, member) == "joined"
    return joined and member.opens <= 0 and member.longest >= asked


def read(exchange: Exchange) -> Procedure[Member]:
    """Read a member's record, after its witness exists."""
    if exchange.dialect.traits.has_witness:
        yield from consult(exchange)
    member: Member = (yield from exchange.ask_or_explain(ReadMember())).answer
    return member


def rewrite(exchange: Exchange, change: Rewrite) -> Procedure[None]:
    """Change a member's record. Another process may have changed it: then this changes nothing."""
    if change.fence:
        yield from exchange.ask_or_explain(RaiseFloor(change.fence))
        yield from exchange.ask_or_explain(RaiseFences(change.fence))
    command = WriteMember(change.before, change.after, change.longest, change.pause)
    yield from exchange.ask_or_explain(command)


def next_step(
    members: str, views: Sequence[Member | None], number: int, ttl: float
) -> Rewrite | None:
    """Return what to change in the record of one member, None if nothing can be changed now.

    ``views`` has what each member answered; None for a member that did not. ``ttl`` is the TTL that
    the members are to vote for.
    """
    member = views[number]
    if member is None:
        return None
    states = [None if view is None else state_of(members, view) for view in views]
    others = [one for place, one in enumerate(views) if one is not None and place != number]
    asked = round(ttl * 1000)
    longest = max([asked, member.longest, *(one.longest for one in others)])
    state, before = states[number], member.value
    if state == "joined":
        # Longer than the longest TTL only if the member's clock was set back.
        rest = min(max(0.0, member.opens), longest / 1000)
        if member.longest >= asked and rest >= member.opens:
            return None
        return Rewrite(before, joined(members, member.instance), max(asked, member.longest), rest)
    if state in ("none", NEW) and all(one in ("none", NEW) for one in states):
        if state == "none":
            return Rewrite(None, f"{members} {NEW}", asked)
        if all(one == NEW for one in states):
            return Rewrite(before, joined(members, member.instance), asked)
        return None
    if state == NEW and "joined" in states:
        return Rewrite(before, joined(members, member.instance), longest)
    voting = sum(one == "joined" for place, one in enumerate(states) if place != number)
    if voting < majority(len(views)) and len(others) < len(views) - 1:
        return None  # what the others know may be missing
    if state == PAUSING:
        if member.opens > 0:
            return None
        if any(one.longest > member.longest for one in others):
            return pausing(members, member, longest)  # it did not know, and paused for too short
        return Rewrite(
            before,
            joined(members, member.instance),
            longest,
            fence=max([member.fence, *(one.fence for one in others)]),
        )
    return pausing(members, member, longest)


def pausing(members: str, member: Member, longest: int) -> Rewrite:
    """Return the change that begins a member's pause of ``longest`` milliseconds."""
    after = f"{members} {PAUSING} {member.instance}"
    return Rewrite(member.value, after, longest, pause=longest / 1000)
