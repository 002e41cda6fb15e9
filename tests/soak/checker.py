"""What a history has to be like. Pure: from events and rows to rules with their violations.

Every rule is sound: it speaks only of times that are certain, so whatever it finds did happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from .facts import Facts, Found, History, Rule, Violation
from .history import PROBE, Event
from .ledger import Row
from .liveness import fair, ghosts, handed_off, prompt
from .operations import Hold, Write, gather

# Refused tries to take a name, a TTL apart, after all faults and all workers have ended. One is
# the last hold's; the rest is for transactions whose end the server has not noticed yet.
PATIENCE = 5


def exclusion(facts: Facts) -> Found:
    """At most one holder of a name believes in it at any time."""
    found = []
    for holds in facts.holds.values():
        longest: Hold | None = None
        for hold in holds:
            if hold.end <= hold.start:
                continue
            if longest is not None and hold.start < longest.end:
                found.append(_pair("two holders at once", longest, hold))
            if longest is None or hold.end > longest.end:
                longest = hold
    return len(facts.operations.holds), found


def unique(facts: Facts) -> Found:
    """No fence of a name is given to two holds."""
    found = []
    for holds in facts.holds.values():
        seen: dict[int, Hold] = {}
        for hold in holds:
            other = seen.setdefault(hold.fence, hold)
            if other is not hold:
                found.append(_pair(f"both holds have fence {hold.fence}", other, hold))
    return len(facts.operations.holds), found


def growing(facts: Facts) -> Found:
    """Fences of a name grow in the order of the holds."""
    found = []
    for holds in facts.holds.values():
        believed = [hold for hold in holds if hold.end > hold.start]
        found += [_smaller(*pair) for pair in pairwise(believed) if pair[0].fence > pair[1].fence]
        # A hold that was asked for after another had begun comes after it, believed in or not.
        begun = iter(holds)
        before, largest = next(begun, None), None
        for hold in sorted(holds, key=lambda hold: hold.sent):
            while before is not None and before.start < hold.sent:
                if largest is None or before.fence > largest.fence:
                    largest = before
                before = next(begun, None)
            if largest is not None and largest.fence > hold.fence:
                found.append(_smaller(largest, hold))
    return len(facts.operations.holds), found


def losses(facts: Facts) -> Found:
    """Nobody is told a loss before its own deadline, unless a member of a quorum was restored."""
    return len(facts.operations.holds), [
        Violation(
            f"{hold.name!r}, fence {hold.fence}, was told {_reason(hold.early_loss)} "
            f"{hold.deadline - hold.early_loss.at:.3f} s before its deadline",
            hold.events,
        )
        for hold in facts.operations.holds
        if hold.early_loss is not None and not facts.forgotten(hold.sent, hold.early_loss.at)
    ]


def acknowledged(facts: Facts) -> Found:
    """Every write that was told to be committed is in the log, unless standbys may miss it."""
    kept = facts.history.keeps_commits
    told = [write for write in facts.operations.writes if kept and write.outcome == "ok"]
    return len(told), [
        Violation(f"the acknowledged write {write.id} is lost", write.events)
        for write in told
        if write.id not in facts.rows
    ]


def refused(facts: Facts) -> Found:
    """No write is in the log that was told to have failed, or whose commit was never sent."""
    told = [
        write
        for write in facts.operations.writes
        if write.outcome == "failed" or write.commit is None
    ]
    return len(told), [
        Violation(
            f"write {write.id} failed and is in the log", write.events, [facts.rows[write.id]]
        )
        for write in told
        if write.id in facts.rows
    ]


def known(facts: Facts) -> Found:
    """Every row of the log is of a write that was sent, with its name and its fence."""
    found = []
    for row in facts.history.ledger.rows:
        write = facts.writes.get(row.id)
        if write is None or (write.name, write.fence) != (row.name, row.fence):
            found.append(Violation("the row is of no such write", facts.events(row), [row]))
    return len(facts.rows), found


def chain(facts: Facts) -> Found:
    """Each write has seen the one before it: no update is lost, and the register is the last."""
    found = []
    for name, log in facts.logs.items():
        value, last = 0, None
        for place, row in enumerate(log, 1):
            if (row.place, row.seen, row.value) != (place, value, value + 1):
                rows = [row] if last is None else [last, row]
                events = [event for one in rows for event in facts.events(one)]
                found.append(
                    Violation(f"{name!r}: an update is lost at place {place}", events, rows)
                )
            value, last = row.value, row
        register = facts.history.ledger.registers.get(name)
        if register != value:
            found.append(
                Violation(
                    f"the register of {name!r} is {register}, its last write {value}",
                    facts.events(last) if last else (),
                    [last] if last else (),
                )
            )
    return len(facts.rows), found


def stale(facts: Facts) -> Found:
    """No write is committed after a write, or a grant, with a larger fence of the same name."""
    found = []
    for name, log in facts.logs.items():
        newest: Row | None = None
        grants = iter(facts.holds[name])
        committed = [(write, row) for row in log if (write := _committed(facts, row)) is not None]
        for row in log:
            if newest is not None and newest.fence > row.fence:
                events = [*facts.events(newest), *facts.events(row)]
                what = f"{name!r}: fence {row.fence} wrote after fence {newest.fence}"
                found.append(Violation(what, events, [newest, row]))
            else:
                newest = row
        grant, largest = next(grants, None), None
        for write, row in sorted(committed, key=lambda pair: pair[0].commit or 0.0):
            assert write.commit is not None
            while grant is not None and grant.start < write.commit:
                if largest is None or grant.fence > largest.fence:
                    largest = grant
                grant = next(grants, None)
            if largest is not None and largest.fence > row.fence:
                what = f"{name!r}: fence {row.fence} committed after {largest.fence} was granted"
                found.append(Violation(what, [*largest.events[:2], *write.events], [row]))
    return len(facts.rows), found


def live(facts: Facts) -> Found:
    """In the end every name can be taken, after its last hold has run out."""
    found = []
    for name in facts.history.names:
        tries = [one for one in facts.operations.probes if one.sent.detail["name"] == name]
        outcomes = [one.outcome for one in tries]
        if "ok" not in outcomes[: PATIENCE + 1]:
            events = [event for one in tries for event in one.events]
            found.append(Violation(f"{name!r} cannot be taken: {outcomes}", events))
    return len(facts.history.names), found


def left(facts: Facts) -> Found:
    """In the end, each name having been taken once more, nobody stands in its queue."""
    queues = [one for one in facts.operations.all if one.sent.kind == "queue"]
    return len(queues), [
        Violation(f"in the queue for {one.name!r} there is still {queue}", one.events)
        for one in queues
        if (queue := one.sent.detail["waiters"])
    ]


def promised(facts: Facts) -> Found:
    """No operation ends with an exception that the library does not promise."""
    return len(facts.operations.all), [
        Violation(f"an unexpected error: {end.detail.get('error')}", one.events)
        for one in facts.operations.all
        if (end := one.end) is not None and end.step == "error"
    ]


RULES: tuple[Callable[[Facts], Found], ...] = (
    exclusion,
    unique,
    growing,
    losses,
    acknowledged,
    refused,
    known,
    chain,
    stale,
    live,
    prompt,
    handed_off,
    ghosts,
    fair,
    left,
    promised,
)
# What is expected to break, and first of all what has to: where writes have no guard; and where
# nothing fences an old primary, which grants beside the new one.
BROKEN_WITHOUT = {"guard": ("stale", "chain"), "fence": ("exclusion", "growing")}


def check(history: History) -> list[Rule]:
    """Apply every rule."""
    facts = Facts(history)
    results = []
    for rule in RULES:
        checked, violations = rule(facts)
        says = (rule.__doc__ or "").partition("\n")[0]
        results.append(Rule(rule.__name__, says, checked, list(violations)))
    return results


def count(history: History) -> Counter[tuple[str, str]]:
    """Count the operations by their kind and outcome."""
    operations = gather(history.events, PROBE).all
    return Counter((one.sent.kind, one.outcome) for one in operations)


def _committed(facts: Facts, row: Row) -> Write | None:
    write = facts.writes.get(row.id)
    return write if write is not None and write.commit is not None else None


def _pair(what: str, first: Hold, second: Hold) -> Violation:
    overlap = min(first.end, second.end) - second.start
    return Violation(
        f"{first.name!r}: {what}; fences {first.fence} and {second.fence}, "
        f"together for {max(0.0, overlap):.3f} s",
        [*first.events, *second.events],
    )


def _smaller(before: Hold, after: Hold) -> Violation:
    return Violation(
        f"{before.name!r}: fence {before.fence} was followed by {after.fence}",
        [*before.events[:2], *after.events[:2]],
    )


def _reason(event: Event) -> str:
    return str(event.detail.get("reason", "nothing"))
