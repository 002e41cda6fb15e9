"""What the simulated network raises, as a driver would."""

from __future__ import annotations


class Error(Exception):
    """What a driver raises: PEP 249."""


class Lost(Error):
    """The connection ended."""


class TimedOut(Lost):
    """The client gave the connection up."""
