"""What is certain of times in a history: when a name was free, and how late all else was. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property
from math import inf

from .facts import Facts
from .history import Event, place_of
from .operations import Hold, Operation, Write
from .spans import Span, touch, union, without

# Seconds for each fault, after it: a lost call is made good by a look, 5 s later at most.
AFTER = 6.0
# What ends a wait, which holds nothing any more when it has been told.
ENDED = ("CancelledError", "KeyboardInterrupt")


class Times:
    """What the rules of waiting ask of a history."""

    def __init__(self, facts: Facts) -> None:
        self.holds = facts.holds
        self.acquires: dict[str, list[Operation]] = defaultdict(list)
        self.yardsticks: list[Operation] = []
        self.faults: list[Operation] = []
        self._writes: dict[str, list[Write]] = defaultdict(list)
        for one in facts.operations.all:
            kind = one.sent.kind
            if kind == "acquire":
                self.acquires[one.name].append(one)
            elif kind == "yardstick":
                self.yardsticks.append(one)
            elif kind == "fault" and one.outcome != "failed":
                self.faults.append(one)
            elif isinstance(one, Write):
                self._writes[one.name].append(one)
        self._holds = {
            (hold.events[0].process, hold.events[0].op): hold for hold in facts.operations.holds
        }
        self.lives: dict[str, Span] = {}  # of each process, as far as it was heard of
        for event in facts.history.events:
            start, _ = self.lives.get(event.process, (event.at, event.at))
            self.lives[event.process] = start, event.at

    def end(self, one: Operation) -> float:
        """When an operation was certainly over."""
        return one.end.at if one.end else self._gone[one.sent.process]

    @cached_property
    def _gone(self) -> dict[str, float]:
        """When each process was certainly gone: when another had its place."""
        starts: dict[int | None, list[float]] = defaultdict(list)
        for process, (start, _) in self.lives.items():
            starts[place_of(process)].append(start)
        gone = {}
        for process, (start, _) in self.lives.items():
            place = place_of(process)
            later = [other for other in starts[place] if other > start]
            gone[process] = min(later, default=inf) if place is not None else inf
        return gone

    # --- names ---------------------------------------------------------------------------------

    def free(self, name: str) -> list[Span]:
        """When a name was certainly free: nobody had it, and nobody might have had it."""
        taken = [self._taken(one) for one in self.acquires[name] if one.outcome != "failed"]
        taken += self._guarded(name)
        starts, ends = zip(*self.lives.values(), strict=True)
        return without([(min(starts), max(ends))], union(taken))

    def in_doubt(self, name: str) -> list[Span]:
        """When those might have had a name who lived to tell that they cannot know."""
        unknown = [
            self._taken(one)
            for one in self.acquires[name]
            if one.end is not None
            and one.outcome == "unknown"
            and one.end.detail.get("error") not in ENDED
        ]
        return union([*unknown, *self._guarded(name)])

    def _guarded(self, name: str) -> list[Span]:
        """When a takeover may have had to wait for the transaction that has a guard."""
        return [(write.sent.at, self.end(write)) for write in self._writes[name]]

    def _taken(self, one: Operation) -> Span:
        hold = self._holds.get((one.sent.process, one.sent.op))
        if hold is None:
            return one.sent.at, self.end(one) + float(one.sent.detail.get("ttl", 0.0))
        return max(hold.sent, hold.began), self._freed(hold)

    def _freed(self, hold: Hold) -> float:
        """When a hold was certainly over: released, or a TTL after all that may have renewed it."""
        released = self.released(hold)
        if released is not None:
            return released
        last = _last(hold)
        changes = ("acquire", "renew", "release")
        alive = [event.at for event in last.values() if event.kind in changes]
        asked = hold.events[0].detail
        if asked.get("renewing") or any(event.step == "sent" for event in last.values()):
            alive.append(self._gone[hold.events[0].process])
        return max(alive) + float(asked.get("ttl", 0.0))

    def released(self, hold: Hold) -> float | None:
        """When a hold was told to be released; None if it never was."""
        return min(
            (
                event.at
                for event in _last(hold).values()
                if (event.kind, event.step) == ("release", "ok")
            ),
            default=None,
        )

    def waited(self, name: str) -> list[Span]:
        """When somebody waited for a name, and lived to tell."""
        return union(
            (one.sent.at, one.end.at) for one in self.acquires[name] if waits(one) and one.end
        )

    def quiet(self, name: str) -> list[Span]:
        """When a name was free and certainly nobody waited for it."""
        waited = ((one.sent.at, self.end(one)) for one in self.acquires[name] if waits(one))
        return without(self.free(name), union(waited))

    def dead(self, name: str, since: float, until: float) -> int:
        """How many waited for a name in that time and were killed: so many may be in its queue."""
        sent, gone = self._killed[name]
        return bisect_right(sent, until) - bisect_left(gone, since)

    @cached_property
    def _killed(self) -> dict[str, tuple[list[float], list[float]]]:
        """Of those who waited for each name and were killed: when that began, and was over."""
        killed = {
            name: [one for one in acquires if waits(one) and one.end is None]
            for name, acquires in self.acquires.items()
        }
        return {
            name: (sorted(one.sent.at for one in those), sorted(map(self.end, those)))
            for name, those in killed.items()
        }

    def around(self, name: str, span: Span) -> list[Event]:
        """What was done with a name in a span of time."""
        events: list[Event] = []
        for one in self.acquires[name]:
            hold = self._holds.get((one.sent.process, one.sent.op))
            of = hold.events if hold is not None else one.events
            end = max(self.end(one), of[-1].at)
            if touch((one.sent.at, end), span):
                events += of
        return events

    # --- allowances ----------------------------------------------------------------------------

    def lateness(self, span: Span) -> float:
        """By how much the slowest yardstick was late, of those that were to be over in a span."""
        dues, ends, slowest = self._pulses
        late = 0.0
        # A yardstick that was due earlier than that was over before the span.
        for at in range(bisect_left(dues, span[0] - slowest), bisect_right(dues, span[1])):
            if touch((dues[at], ends[at]), span):
                late = max(late, min(ends[at], span[1]) - dues[at])
        return late

    @cached_property
    def _pulses(self) -> tuple[list[float], list[float], float]:
        """When each yardstick was due, in order, when it was over, and the longest of the delays.

        A long run has hundreds of thousands, and many a span asks for them.
        """
        both = sorted(
            (
                float(one.sent.detail["due"]),
                one.end.at if one.end else self.lives[one.sent.process][1],
            )
            for one in self.yardsticks
        )
        slowest = max((end - due for due, end in both), default=0.0)
        return [due for due, _ in both], [end for _, end in both], slowest

    def allowance(self, span: Span, events: list[Event]) -> float:
        """The seconds that faults around a span may cost those who did these events."""
        places, allowed = {place_of(event.process) for event in events}, 0.0
        for fault in self.faults:
            place = fault.sent.detail.get("place")
            if place is not None and place not in places:
                continue
            after = AFTER + float(fault.sent.detail.get("pause", 0.0))
            start, end = fault.sent.at, self.end(fault)
            if touch((start, end + after), span):
                allowed += max(0.0, min(end, span[1]) - max(start, span[0])) + after
        return allowed


def _last(hold: Hold) -> dict[int, Event]:
    """The last that is known of each operation of a hold."""
    return {event.op: event for event in hold.events}


def waits(one: Operation) -> bool:
    """Whether an acquire is one that waits."""
    return bool(one.sent.detail.get("wait", 0.0) != 0.0)


def is_refused(one: Operation) -> bool:
    """Whether an acquire was told that another has the name."""
    return one.end is not None and one.end.detail.get("error") == "NotAcquired"
