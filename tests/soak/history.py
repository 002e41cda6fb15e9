"""What happened, as the processes saw it: one append-only file of JSON lines for each of them.

A line is one ``os.write``, so a SIGKILL loses nothing that was written before it. An operation is
written down before it is sent and after its outcome; one without an outcome is unknown. The times
are of one clock for the whole machine, so those of different processes can be compared.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NEMESIS = "nemesis"
PROBE = "probe"
#: The fault of a quorum's member that is put back to an older copy.
RESTORED = "member restored"
YARDSTICK = "yardstick"


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_name(place: int, life: int) -> str:
    """What a worker is called: those with the same place come one after the other."""
    return f"worker-{place}-{life}"


def place_of(process: str) -> int | None:
    """A worker's place, from its name; None of who is no worker."""
    found = re.fullmatch(r"worker-(\d+)-\d+", process)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Event:
    """One line.

    ``kind`` is the operation: acquire, inside, renew, write, release, fault, calm, yardstick, or
    worker. ``step`` is how far it has come: sent, for a write also commit (about to be sent), then
    ok, failed (it did not happen), unknown (no reply), or error (an exception nobody promised).
    """

    at: float
    process: str
    op: int
    kind: str
    step: str
    detail: dict[str, Any] = field(default_factory=dict)


class Operation:
    """One operation of a process; ``op`` is its number there."""

    def __init__(self, recorder: Recorder, op: int, kind: str) -> None:
        self._recorder, self.op, self.kind = recorder, op, kind

    def tell(self, step: str, at: float | None = None, **detail: Any) -> None:
        """Write down how far it has come, at a time read before or after, as fits the step."""
        self._recorder.write(self, step, now() if at is None else at, detail)


class Recorder:
    """Writes the history of one process."""

    def __init__(self, directory: Path, process: str) -> None:
        self.process = process
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(directory / f"{process}.jsonl", flags, 0o644)
        self._ops = itertools.count(1)  # its threads have one number each, without a lock

    def begin(self, kind: str, **detail: Any) -> Operation:
        """Write down that an operation is about to be sent."""
        operation = Operation(self, next(self._ops), kind)
        operation.tell("sent", **detail)
        return operation

    def write(self, operation: Operation, step: str, at: float, detail: dict[str, Any]) -> None:
        line = {"at": at, "process": self.process, "op": operation.op, "kind": operation.kind}
        os.write(self._file, json.dumps(line | {"step": step} | detail).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def parse(line: str | bytes) -> Event:
    detail = json.loads(line)
    known = {name: detail.pop(name) for name in ("at", "process", "op", "kind", "step")}
    return Event(**known, detail=detail)


def read(directory: Path) -> list[Event]:
    """The events of all processes; those of one process in the order of its file.

    A process that was killed while it wrote may have left a part of its last line.
    """
    events = [
        parse(line)
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_bytes().rpartition(b"\n")[0].splitlines()
    ]
    return sorted(events, key=lambda event: event.at)


class Tail:
    """Counts the events in a directory while they are written, and the faults that happened."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self._sent: dict[tuple[str, int], str] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[str] = Counter()

    def pending(self, kind: str) -> int:
        """How many operations of a kind have been sent and have no outcome yet."""
        ended = ("ok", "failed", "unknown", "error")
        return self.counts[kind, "sent"] - sum(self.counts[kind, step] for step in ended)

    def follow(self) -> None:
        for path in self._directory.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                lines = file.read().rpartition(b"\n")[0]
            if lines:
                self._read[path] = self._read.get(path, 0) + len(lines) + 1
                self.add(parse(line) for line in lines.splitlines())

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            self.counts[event.kind, event.step] += 1
            if event.kind == "fault" and event.step == "sent":
                self._sent[event.process, event.op] = event.detail["fault"]
            elif event.kind == "fault" and event.step == "ok":
                self.faults[self._sent[event.process, event.op]] += 1
