"""What a lease at three databases costs, counted at each member."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from dblock import Locks, Quorum
from dblock.io.connections import Connections
from tests.patience import SECONDS
from tests.quorum.conftest import PATIENT, held_at
from tests.support import eventually


def test_round_trips(three: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    asked: defaultdict[int, list[str]] = defaultdict(list)
    execute = Connections.execute

    def counted(self: Connections, connection: object, query: object, *more: object) -> object:
        sent.append(query.kind)  # type: ignore[attr-defined]
        asked[id(self)].append(query.kind)  # type: ignore[attr-defined]
        return execute(self, connection, query, *more)  # type: ignore[arg-type]

    def free(quorum: Quorum) -> Callable[[], bool]:
        return lambda: all(not state.held for state in quorum.list())

    with Quorum(three, timeouts=PATIENT) as quorum:
        with quorum.lease("report", ttl=60, wait=0):
            eventually(lambda: held_at(three) == 3)  # the slowest too
        eventually(free(quorum))
        monkeypatch.setattr(Connections, "execute", counted)
        # Fences agree: one statement at each member, and one to release.
        with quorum.lease("report", ttl=60, wait=0):
            eventually(lambda: len(sent) == 3)
            assert sent == ["vote"] * 3
            sent.clear()
        eventually(lambda: len(sent) == 3)
        assert set(sent) <= {"release", "pass_on"}  # a grant that came late is passed on
        # All differ: of any two one is behind, and gets a second statement; none gets a third.
        monkeypatch.undo()
        fences = [held_alone(url, holds) for holds, url in enumerate(three)]
        assert len(set(fences)) == 3
        eventually(free(quorum))
        sent.clear()
        asked.clear()
        monkeypatch.setattr(Connections, "execute", counted)
        with quorum.lease("report", ttl=60, wait=0) as lease:
            eventually(lambda: sent.count("vote") == 3 and sent.count("stamp") >= 1)
            assert all(kinds in (["vote"], ["vote", "stamp"]) for kinds in asked.values())
            assert lease.fence > sorted(fences)[1]


def held_alone(url: str, holds: int) -> int:
    """Return the fence of the name at one database, after so many holds there."""
    with Locks(url) as locks:
        for _ in range(holds):
            with locks.lease("report", wait=SECONDS):
                pass
        return locks.show("report").fence
