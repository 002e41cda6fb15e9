"""Pieces of SQL that several statements share, and how values are written for them."""

from __future__ import annotations

NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
SHIFTED = "strftime('%Y-%m-%d %H:%M:%f', 'now', {})"
LATER = SHIFTED.format(":ttl")
FREE = f"(token IS NULL OR expires_at <= {NOW})"
# In seconds. Both times are in milliseconds, but as days they are rounded to about 40 microseconds.
REMAINING = "round((julianday(expires_at) - julianday('now')) * 86400.0, 3)"


def modifier(seconds: float) -> str:
    return f"{seconds:+.3f} seconds"
