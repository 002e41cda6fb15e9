"""The witness."""

from __future__ import annotations

from ..state import Witness
from .command import Command, Duration


class ReadWitness(Command[Witness | None]):
    """Read the witness."""


class WriteWitness(Command[int]):
    """Write a new witness if it is missing; one row when this statement wrote it.

    If the lock table may have lost a lease, the statement begins a new epoch, with a pause of the
    longest TTL. It shortens a pause that is longer than the longest TTL.
    """


class Distrust(Command[int]):
    """Make the next caller that reads the witness begin a new epoch, with a pause.

    The pause lasts for ``longest`` seconds, or for the longest TTL if that is None.
    """

    longest: float | None


class AnnounceTtl(Command[int]):
    """Write into the epoch's row, which a failover keeps, that leases with TTLs up to ``ttl`` may
    be granted."""

    ttl: Duration


class RecordTtl(Command[int]):
    """Allow grants with TTLs up to ``ttl`` from now on, and record that for after a crash.

    The statement does nothing unless a TTL at least as long is announced. Once a day it drops the
    recorded TTLs that no caller has asked for since the last time.
    """

    ttl: Duration
