"""What the simulated network raises, as a driver would."""

from __future__ import annotations

from dblock.protocol.faults import Fault


class Error(Exception):
    """What a driver raises: PEP 249."""


class Refused(Error):
    """The server's answer to a statement that fails."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.name.lower())
        self.fault = fault


class Lost(Error):
    """The connection ended."""


class TimedOut(Lost):
    """The client gave the connection up."""
