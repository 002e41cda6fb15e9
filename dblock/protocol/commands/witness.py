"""The witness."""

from __future__ import annotations

from ..state import Witness
from .command import Command, Duration


class ReadWitness(Command[Witness | None]):
    """Read the witness."""


class WriteWitness(Command[int]):
    """Write a new witness if it is missing."""


class Distrust(Command[int]):
    """Invalidate the witness; no present lease lasts for longer than ``longest`` seconds."""

    longest: float | None


class AnnounceTtl(Command[int]):
    """Record, for after a failover, that leases with TTLs up to ``ttl`` may be granted."""

    ttl: Duration


class RecordTtl(Command[int]):
    """Record, for after a crash, that leases with TTLs up to ``ttl`` are granted."""

    ttl: Duration
