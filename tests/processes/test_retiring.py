"""Names are retired while processes use them, by processes that are killed in the midst of it."""

from __future__ import annotations

import random
from contextlib import ExitStack
from itertools import pairwise

from sqlalchemy import select

from tests.conftest import Database
from tests.processes.retiring import JOURNAL, retire_names, use_names
from tests.processes.workers import Process, make_engine

#: So many names are retired in all, a few by each process.
RETIRED, KILLS = 150, 5


def test_fences_grow_while_names_are_retired(db: Database) -> None:
    engine, drawn, retired, killed = make_engine(db.url), random.Random(1), 0, 0
    JOURNAL.create(engine)
    with ExitStack() as users:
        for seed in range(2):
            users.enter_context(Process(use_names, db.url, seed))
        while retired < RETIRED or killed < KILLS:
            with Process(retire_names, db.url) as pruner:
                some = 0
                while some < RETIRED / KILLS:
                    some += pruner.message()
                for _ in range(drawn.randrange(3)):
                    some += pruner.message()
                retired += some
            killed += 1
    with engine.connect() as connection:
        written = connection.execute(select(JOURNAL).order_by(JOURNAL.c.id)).all()
    engine.dispose()
    fences: dict[str, list[int]] = {}
    for _, name, fence in written:
        fences.setdefault(name, []).append(fence)
    assert any(later > earlier + 1 for one in fences.values() for earlier, later in pairwise(one))
    for name, given in fences.items():
        assert all(earlier < later for earlier, later in pairwise(given)), (name, given)
