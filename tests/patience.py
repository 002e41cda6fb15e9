"""How long tests wait for an event before they call it missing.

A test that passes never waits for as long as this, so it can be generous: it has to be enough on a
machine that is five times slower, or busy with other work.
"""

from __future__ import annotations

SECONDS = 300.0
#: Longer than any test takes, in seconds.
NEVER = 3600.0
