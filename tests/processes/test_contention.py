"""Sixteen processes, three names, all strategies: nothing is lost and fences are in order."""

from __future__ import annotations

from contextlib import ExitStack

from tests.conftest import Database
from tests.processes.workers import Process, Tally, contend, make_engine

PROCESSES = 16
SECTIONS = {"postgresql": 15, "mariadb": 15, "mysql": 15, "sqlite": 5}


def test_sixteen_processes_lose_nothing(db: Database) -> None:
    engine = make_engine(db.url)
    tally = Tally(engine)
    tally.create()
    sections = SECTIONS[db.kind]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(Process(contend, db.url, seed, sections))
            for seed in range(PROCESSES)
        ]
        for process in processes:
            assert process.message() == "ready"
        for process in processes:
            process.go_on()
        for process in processes:
            assert process.message() == "done"
    history = tally.history()
    assert sum(len(entries) for entries in history.values()) == PROCESSES * sections
    for entries in history.values():
        places = [n for n, _, _ in entries]
        assert places == list(range(1, len(entries) + 1)), f"an update was lost: {entries}"
        fences = [fence for _, _, fence in entries if fence is not None]
        assert fences == sorted(set(fences))
        assert len({strategy for _, strategy, _ in entries}) > 1, "they were not mixed"
    engine.dispose()
