"""The rules of waiting: who waits for a free name gets it soon, and nobody is left out. Pure.

No bound here is absolute. Each history has a yardstick, how late the processes' own timers and
the database's commits were, and a bound grows with what that shows of the same time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import inf

from dblock.protocol.timing import Timing

from .facts import Facts, Found, Violation
from .hand_offs import LOOK, hand_offs
from .history import place_of
from .spans import both
from .times import Times, is_refused, waits

# Seconds that a free name with a living waiter may stay free where there is no fault.
BOUND = 1.2
# The steps from one holder to the next, each of which may be as late as the yardstick was.
STEPS = 10
# How many times as often as another of its equals a process may get its names; and how many
# grants of each, in the mean, say something about that.
FAIR, ENOUGH = 4.0, 20


def kept_for_each(facts: Facts) -> float:
    """For how many seconds a free name is kept for each who died while it waited."""
    return 0.0 if facts.history.sees_deaths else Timing().grace


def prompt(facts: Facts) -> Found:
    """A free name with a living waiter is granted within 1.2 s, or an allowance for each fault."""
    times, found, checked = Times(facts), [], 0
    for name in list(times.acquires):
        for span in both(times.free(name), times.waited(name)):
            checked += 1
            free = span[1] - span[0]
            if free <= BOUND:
                continue
            events = times.around(name, span)
            allowed = BOUND + STEPS * times.lateness(span) + times.allowance(span, events)
            if free > allowed:
                what = f"{name!r} was free for {free:.3f} s, with somebody waiting for it"
                found.append(Violation(f"{what}; {allowed:.3f} s are allowed", events))
    return checked, found


def handed_off(facts: Facts) -> Found:
    """The next has a released name within 1.2 s; a term later where one just killed was first.

    Where nobody sees that a waiter has died the name is kept for each for a moment.
    """
    times, found, checked = Times(facts), [], 0
    kept = kept_for_each(facts)
    for one in hand_offs(times, sees_deaths=facts.history.sees_deaths):
        checked += 1
        if one.free <= BOUND:
            continue
        events = times.around(one.after.name, one.span)
        allowed = BOUND + STEPS * times.lateness(one.span) + times.allowance(one.span, events)
        allowed += one.lost * (float(one.after.events[0].detail.get("ttl", 0.0)) + LOOK)
        allowed += one.deaths * kept
        if one.free > allowed:
            what = f"{one.after.name!r} was not handed off for {one.free:.3f} s, {allowed:.3f} s "
            found.append(Violation(f"{what}are allowed, {one.deaths} were killed", events))
    return checked, found


def ghosts(facts: Facts) -> Found:
    """A name that is free, and that nobody waits for, is granted to a try that does not wait.

    Where nobody sees that a waiter has died the name is kept for each for a moment.
    """
    times, found, checked = Times(facts), [], 0
    kept = kept_for_each(facts)
    for name, acquires in list(times.acquires.items()):
        refused = [one for one in acquires if not waits(one) and is_refused(one)]
        checked += len(refused)
        for start, end in times.quiet(name):
            if end - start <= BOUND:
                continue
            late = [one for one in refused if start + BOUND < one.sent.at and times.end(one) < end]
            if not late:
                continue
            span = start, times.end(late[-1])
            events = times.around(name, (start, start))
            allowed = BOUND + STEPS * times.lateness(span) + times.allowance(span, events)
            before = (hold.sent for hold in times.holds[name] if hold.start <= start)
            allowed += kept * times.dead(name, max(before, default=-inf), span[1])
            if late[-1].sent.at - start > allowed:
                free = late[-1].sent.at - start
                what = f"{name!r} was refused, free for {free:.3f} s and with nobody waiting for it"
                found.append(
                    Violation(f"{what}; {allowed:.3f} s are allowed", [*events, *late[-1].events])
                )
    return checked, found


def fair(facts: Facts) -> Found:
    """No process gets its names 4 times as often as another that does the same, without a fault."""
    times, found = Times(facts), []
    hurt = {fault.sent.detail.get("place") for fault in times.faults}
    equals: dict[str, list[str]] = defaultdict(list)
    for one in facts.operations.all:
        process, like = one.sent.process, one.sent.detail.get("like")
        if one.sent.kind == "worker" and like is not None and place_of(process) not in hurt:
            equals[like].append(process)
    for processes in equals.values():
        start = max(times.lives[process][0] for process in processes)
        end = min(times.lives[process][1] for process in processes)
        grants = Counter(dict.fromkeys(processes, 0))
        grants.update(
            hold.events[0].process
            for hold in facts.operations.holds
            if hold.events[0].process in grants and start <= hold.start <= end
        )
        (most, many), *_, (least, few) = grants.most_common()
        if len(processes) > 1 and grants.total() >= ENOUGH * len(grants) and many > FAIR * few:
            what = f"{most} got its names {many} times, {least} {few} times"
            found.append(Violation(f"{what}, in {end - start:.1f} s: {dict(grants)}"))
    return sum(map(len, equals.values())), found
