"""What the database knows of the leases that may be out, so that nobody gets what they are on."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tests.simulation.loop import Violation
from tests.simulation.store import Store
from tests.simulation.tables import Row

#: Moments are rounded, in some databases to milliseconds.
ROUNDED = 0.002


class Memory:
    """Promise 15: what was lost is found out once, and is waited for until it is over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: How often it was found out that something may be lost; the epoch since.
        self._begun, self._epoch = 0, store.epoch()
        #: Up to which TTL names are granted, and until when; and before which loss that was so.
        self._known, self._falls = store.known_ttl(), store.falls
        #: When the last lease is over that the database has forgotten.
        self._over = -math.inf

    def look(self, rows: Mapping[str, Row], now: float) -> None:
        """Look after a statement what would be known if all were lost now."""
        epoch, known, falls = self._store.epoch(), self._store.known_ttl(), self._store.falls
        self._begun += epoch > self._epoch
        if self._begun > falls:
            raise Violation("it is found out that leases may be lost, and none may")
        ttl, until = self._known
        if self._falls == falls and known[0] < ttl and now < until:
            raise Violation(f"a TTL of {ttl:g} s is known no more, which was until {until:.1f}")
        self._epoch, self._known, self._falls = epoch, known, falls
        longest = now + max(0.0, -self._store.ahead) + self._store.longest_pause() + ROUNDED
        for name, row in rows.items():
            if row.token is not None and (row.expires or 0.0) > longest:
                raise Violation(f"{name!r} is held for longer than is known after a crash")

    def forget(self, rows: Mapping[str, Row], left: Mapping[str, Row]) -> None:
        """Take down that there were rows, of which only others are left."""
        now = self._store.clock()
        most = now + self._store.longest_pause()
        for name, row in rows.items():
            kept, expires = left.get(name), row.expires or 0.0
            stays = kept is not None and kept.token == row.token
            if not row.free(now) and not (stays and kept and (kept.expires or 0.0) >= expires):
                self._over = max(self._over, min(most, expires))

    def check_grant(self, name: str, now: float) -> None:
        """A name is granted now."""
        if now < self._store.closed_until():
            raise Violation(f"{name!r} was granted while nothing is")
        if now < self._over:
            raise Violation(f"{name!r} was granted while a lease is out that is forgotten")
