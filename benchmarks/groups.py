"""All that is measured, by name, and all targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import (
    aio,
    counters,
    drain,
    loops,
    majority,
    observing,
    pairs,
    rising,
    scale,
    service,
    snapshot,
    start_up,
    steady,
    tries,
    turn,
    waiting,
)
from .figures import Effort, Figure
from .site import Site

GROUPS: dict[str, Callable[[Site, Effort], Iterator[Figure]]] = {
    pairs.GROUP: pairs.run,
    aio.GROUP: aio.run,
    loops.DISTINCT: loops.run_distinct,
    loops.ONE: loops.run_one,
    loops.SLOTS: loops.run_slots,
    turn.GROUP: turn.run,
    drain.DRAIN: drain.run_drain,
    drain.DEAD: drain.run_dead,
    waiting.GROUP: waiting.run,
    counters.GROUP: counters.run,
    observing.GROUP: observing.run,
    rising.GROUP: rising.run,
    steady.GROUP: steady.run,
    tries.GROUP: tries.run,
    snapshot.GROUP: snapshot.run,
    scale.GROUP: scale.run,
    majority.GROUP: majority.run,
    start_up.GROUP: start_up.run,
    service.GROUP: service.run,
}

TARGETS = tuple(
    target
    for module in (
        pairs,
        aio,
        loops,
        drain,
        waiting,
        counters,
        observing,
        rising,
        steady,
        tries,
        snapshot,
        scale,
        majority,
        start_up,
        service,
    )
    for target in module.TARGETS
)
