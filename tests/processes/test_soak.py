"""A short soak: nothing is violated under the guard, and without it the checker sees what is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import OwnServers
from tests.soak import report
from tests.soak.checker import check
from tests.soak.facts import History
from tests.soak.history import Tail
from tests.soak.profiles import EACH
from tests.soak.run import Settings, soak

# What it has found, each with a test of its own in tests/soak/test_found.py. To be emptied.
KNOWN: tuple[str, ...] = ()
SECONDS = 8.0  # or longer, where it takes longer to do and to break enough


def run(kind: str, own_server: OwnServers, directory: Path, *, guarded: bool) -> History:
    # Without the guard it goes on until late holders have written, on a busy machine too.
    settings = Settings(SECONDS, seed=1, guarded=guarded, ttl=0.5, writes=60 if guarded else 200)
    return soak(settings, own_server(EACH[kind]), directory)


def told(directory: Path, history: History, *, guarded: bool) -> None:
    rules = check(history)
    for rule in rules:
        if rule.name == "promised":
            found = rule.violations
            rule.violations = [one for one in found if not any(word in one.what for word in KNOWN)]
    good, says = report.verdict(rules, guarded=guarded)
    shown = [line for rule in rules for one in rule.violations for line in report.excerpt(one)]
    assert good, "\n".join([says, f"history: {directory}", *shown])


@pytest.mark.parametrize("kind", EACH)
def test_nothing_is_violated(kind: str, own_server: OwnServers, tmp_path: Path) -> None:
    history = run(kind, own_server, tmp_path, guarded=True)
    told(tmp_path, history, guarded=True)
    tail = Tail(tmp_path)
    tail.follow()
    assert len(tail.faults) >= 11
    assert len(history.ledger.rows) >= 60


def test_stale_writes_are_seen(own_server: OwnServers, tmp_path: Path) -> None:
    history = run("postgresql", own_server, tmp_path, guarded=False)
    told(tmp_path, history, guarded=False)
