"""How much longer anything may take than without faults: what each fault and delay can cost."""

from __future__ import annotations

from tests.simulation.schedule import HELD_MAX, After, Fault, Later, Schedule, label_kind

#: Seconds for which a free name may have a living waiter and no holder, without a fault: a sleep
#: of the retry policy, and the ways there and back.
FREE_MAX = 1.2
#: Seconds in which any other call ends, without a fault, and after a wait that was asked for.
CALL_MAX = 1.2
#: The same where nothing is late either: nobody sleeps longer than there is to wait.
CALL_QUIET = 0.4

#: The longest sleep of the retry policy: the next try, where one was in vain.
_TRY = 1.0
#: How long a free name is kept for the first in its queue, although that does not come.
_GRACE = 0.4
#: ``Timeouts.socket`` and ``Timeouts.connect`` of the simulated clients, by the slowest clock.
_SOCKET, _CONNECT = 10.0 / 0.9, 3.0 / 0.9
#: A server that has crashed is away for 0.2 s, and asked again every 0.05 s.
_RESTART = 0.3

_COSTS = {
    # The connection is replaced at once, and the outcome looked for. What was found refused is
    # tried again after a sleep.
    "lost": _TRY,
    "unanswered": _TRY,
    # The same; and what comes late may join a queue that nobody waits in.
    "late": _TRY + _GRACE,
    # The client waits for the answer, and only then it goes on as above.
    "mute": _SOCKET + _TRY,
    "deaf": _SOCKET + _TRY,
    # Who died may have been the first in the queue.
    "kill": _GRACE,
    "kill-before": _GRACE,
    # So may who is stopped; how long that one needs itself is not counted.
    "pause": _GRACE,
    # Who is interrupted leaves the queue itself, in a statement or two.
    "interrupt": 0.1,
    # All connections are lost, and there is none to be had for a moment.
    "crash": _RESTART + _TRY,
    "crash-after": _RESTART + _TRY,
    "promote": _RESTART + _TRY,
    # What was given up is tried again, as long as there is time for that.
    "given-up": _TRY,
    # Its reply is lost; what was found needs another one.
    "alone": 2 * _SOCKET + _TRY,
    # A session that is ended while it waits, or listens, is replaced.
    "cut": _TRY,
}
#: The same for a connection that is made.
_CONNECT_COSTS = {"lost": _TRY, "mute": _CONNECT + _TRY}

#: The longest that anything is tried while the database does not answer at all.
SILENT = _SOCKET + _CONNECT + _TRY

#: Faults of the server, which fail all that is under way, and may undo what was done.
FALLS = frozenset({"crash", "crash-after", "promote"})
#: Kinds of statements that change who has a name.
_CHANGING = frozenset(
    {
        *("grant", "grant_slot", "take", "join", "wait_in_server", "attach", "take_place"),
        *("join_readers", "leave_readers", "vote"),
        *("renew", "release", "pass_on", "release_and_unlock"),
    }
)
#: Those that are repeated when the answer to them is lost.
_REPEATED = frozenset(
    {
        *("grant", "grant_slot", "take", "join", "attach", "release", "pass_on", "renew"),
        *("join_readers", "leave_readers"),
        *("look", "look_queued", "look_at_slots", "set_limit", "lock_row"),
    }
)
#: Those of a transaction that has locked something, which stays so until the late one has come.
_HOLDING = frozenset(
    {
        *("lock_row", "create", "savepoint", "commit", "rollback"),
        *("insert", "update", "delete"),
    }
)


class Allowance:
    """What a schedule may cost whom."""

    def __init__(self, schedule: Schedule, look: float = 0.0) -> None:
        """Where waiters are called, one that is not looks by itself after ``look`` seconds."""
        self._changes = schedule.changes
        self.calls = look > 0
        #: Nothing fails and nothing is late by more than a moment.
        self.quiet = not schedule.faults and schedule.delayed < _GRACE / 2
        #: Whatever fails, it is the server that says so.
        self.told = all(fault.kind == "given-up" for fault in schedule.faults)
        #: One thing is another, and that is a statement whose session is ended where it is lost.
        self.ends = len(schedule.changes) == 1 and _is_ended(*schedule.changes[0])
        #: No reply can have been given up, nor a connection that is made.
        self.answered = not schedule.faults and schedule.delayed < 0.8 * _CONNECT
        #: The reply to a statement that changes something can have been lost.
        self.doubtful = any(
            isinstance(change, Fault)
            and change.kind != "given-up"
            and (change.kind in FALLS or _changes(label))
            for label, change in schedule.changes
        ) or (schedule.delayed >= 0.8 * _SOCKET)
        self.total = schedule.delayed + sum(
            look + (_cost(label, change) if isinstance(change, Fault) else 0.0)
            for label, change in schedule.changes
        )
        #: How often the server falls.
        self.falls = sum(fault.kind in FALLS for fault in schedule.faults)
        #: Another server takes over: then all holds end, also those that it has heard of.
        self.fails_over = any(fault.kind == "promote" for fault in schedule.faults)
        self.stops = sum(fault.seconds for fault in schedule.faults if fault.kind == "pause")

    @property
    def free(self) -> float:
        """For how long a name may be free although somebody waits for it."""
        return FREE_MAX + self.total

    @property
    def call(self) -> float:
        """How long a call may last, beside what it was asked to wait."""
        return (CALL_QUIET if self.quiet else CALL_MAX) + self.total + self.stops

    def late(self, actor: str) -> float:
        """By how much later an actor may come to do what it does at a moment."""
        return sum(_delay(change) for label, change in self._changes if _of(label, actor))

    def fails(self, client: str, *kinds: str) -> bool:
        """Whether anything fails at a client: all it tries may, or statements of some kinds only.

        One failure is no excuse for what is tried again. A request that comes late is one for all
        that it does then, and a session that is cut for what it is sent then.
        """
        failing = 0
        for label, change in self._changes:
            if isinstance(change, Fault):
                if change.kind in FALLS:
                    return True
                if _of(label, client):
                    failing += 1
                    if not kinds or label_kind(label) in kinds or failing > 1:
                        return True
                    if change.kind in ("late", "cut"):
                        return True
        return False

    def disturbs(self, client: str) -> bool:
        """Whether something fails at a client, or it may be too late for its turn."""
        return self.fails(client) or self.late(client) >= _GRACE / 2


def _is_ended(label: str, change: object) -> bool:
    """Whether a statement is repeated, and its session ended before that."""
    falls = isinstance(change, Fault) and change.kind in FALLS
    # The look of a renewal that found nothing is not: the next renewal is another one.
    return not falls and label_kind(label) in _REPEATED and ".renewer.look#" not in label


def _changes(label: str) -> bool:
    """Whether it is a request that changes who has a name."""
    return label_kind(label) in _CHANGING


def _of(label: str, name: str) -> bool:
    return label.startswith(f"{name}.")


def _delay(change: object) -> float:
    if isinstance(change, Later):
        return change.seconds
    return HELD_MAX if isinstance(change, After) else 0.0


def _cost(label: str, fault: Fault) -> float:
    costs = _CONNECT_COSTS if ".connect#" in label else _COSTS
    holds = fault.kind == "given-up" or (fault.kind == "late" and label_kind(label) in _HOLDING)
    return costs[fault.kind] + (fault.seconds if holds else 0.0)
