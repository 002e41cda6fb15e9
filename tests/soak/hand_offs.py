"""From one holder to the next: how long each name was free while somebody waited for it. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from .operations import Hold
from .spans import Span, both, without
from .times import Times

# Seconds after a waiter's death in which the server may not have noticed it yet.
JUST = 1.0
# What it takes to look, when the term of such a one is over that was granted the name.
LOOK = 0.5


@dataclass(frozen=True, slots=True)
class HandOff:
    """From a release to the next hold that is known of.

    ``free`` is how much of that it was certainly free and somebody waited who lived to tell:
    that nobody else had it is what the fences show. ``deaths`` are those who waited
    for the name and were killed then, or just before; or since the hold was asked for, where nobody
    sees that they have died. Of the grants in between that nobody told of ``lost`` went to them at
    most.
    """

    before: Hold
    after: Hold
    span: Span
    free: float
    deaths: int
    lost: int


def hand_offs(times: Times, *, sees_deaths: bool) -> Iterator[HandOff]:
    """All of them: a hold without a recorded release hands nothing off."""
    for name, holds in times.holds.items():
        waited = without(times.waited(name), times.in_doubt(name))
        starts, ends = [start for start, _ in waited], [end for _, end in waited]
        for before, after in pairwise(sorted(holds, key=lambda hold: hold.fence)):
            released = times.released(before)
            if released is None:
                continue
            # Who is passed a name may know before the release has its reply.
            span = min(released, after.start), after.start
            near = waited[bisect_left(ends, span[0]) : bisect_right(starts, span[1])]
            free = sum(end - start for start, end in both([span], near))
            since = span[0] - JUST if sees_deaths else before.sent
            deaths = times.dead(name, since, span[1])
            lost = min(after.fence - before.fence - 1, deaths)
            yield HandOff(before, after, span, free, deaths, lost)
