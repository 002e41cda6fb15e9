"""Metrics of locks and jobs, in Prometheus's text format 0.0.4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..lock_state import LockState, RunState

STATES = ("held", "running", "done", "locked", "expired")
OUTCOMES = ("succeeded", "failed", "running", "unknown")


class Metric(NamedTuple):
    """A metric: its name, what it is, its values by their labels, and gauge or counter."""

    name: str
    help: str
    values: Iterable[tuple[dict[str, str], float]]
    kind: str = "gauge"


def exposition(states: list[LockState], runs: list[RunState], limit: int) -> str:
    """Return the metrics of locks, and of jobs by their last runs."""
    return written(_metrics(states, runs, limit))


def written(metrics: Iterable[Metric]) -> str:
    """Return metrics in the text format."""
    return "".join(map(_text, metrics))


def _metrics(states: list[LockState], runs: list[RunState], limit: int) -> Iterator[Metric]:
    counts = Counter(state.status for state in states)
    yield Metric(
        "dblock_locks", "Locks, by state.", [({"state": one}, counts[one]) for one in STATES]
    )
    waiting = sum(len(state.waiters) for state in states)
    yield Metric("dblock_waiters", "Processes that wait for a lock.", [({}, waiting)])
    truncated = len(states) > limit or len(runs) > limit
    yield Metric("dblock_truncated", "1 if names were left out.", [({}, truncated)])

    states = sorted(states, key=lambda state: (-len(state.waiters), -(_held(state) or 0)))
    yield from _of_locks(states[:limit])
    yield from _of_jobs(runs[:limit])


def _of_locks(states: list[LockState]) -> Iterator[Metric]:
    yield Metric(
        "dblock_lock_state",
        "1 for the state that the lock is in.",
        [({"name": one.name, "state": one.status}, 1) for one in states],
    )
    yield Metric(
        "dblock_lock_waiters",
        "Processes that wait for this lock.",
        [({"name": one.name}, len(one.waiters)) for one in states],
    )
    yield Metric(
        "dblock_lock_held_seconds",
        "Seconds since a lease was acquired.",
        [({"name": one.name}, held) for one in states if (held := _held(one)) is not None],
    )
    yield Metric(
        "dblock_lock_expires_seconds",
        "Seconds until a lease expires unless it is renewed. Below 0 if it has expired.",
        [({"name": one.name}, one.remaining) for one in states if one.remaining is not None],
    )


def _of_jobs(runs: list[RunState]) -> Iterator[Metric]:
    yield Metric(
        "dblock_job_last_start_timestamp_seconds",
        "When the last run of a job began.",
        [({"name": run.name}, run.started_at.timestamp()) for run in runs],
    )
    yield Metric(
        "dblock_job_last_end_timestamp_seconds",
        "When the last run of a job ended.",
        [({"name": run.name}, run.ended_at.timestamp()) for run in runs if run.ended_at],
    )
    yield Metric(
        "dblock_job_last_duration_seconds",
        "How long the last run of a job took.",
        [({"name": run.name}, run.seconds) for run in runs if run.seconds is not None],
    )
    yield Metric(
        "dblock_job_last_exit_status",
        "The exit status of the last run of a job.",
        [({"name": run.name}, run.exit_status) for run in runs if run.exit_status is not None],
    )
    yield Metric(
        "dblock_job_last_outcome",
        "1 for the outcome of the last run of a job. Unknown if its process died.",
        [
            ({"name": run.name, "outcome": one}, run.outcome == one)
            for run in runs
            for one in OUTCOMES
        ],
    )


def _held(state: LockState) -> float | None:
    """Return the seconds since a lease was acquired, by the database's clock."""
    if not state.held or state.acquired_at is None or state.expires_at is None:
        return None
    assert state.remaining is not None
    return (state.expires_at - state.acquired_at).total_seconds() - state.remaining


def _text(metric: Metric) -> str:
    lines = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
    for labels, value in metric.values:
        told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"{metric.name}{f'{{{told}}}' if told else ''} {float(value):.3f}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
