"""A short soak of each kind: a free name is passed on soon, to everybody, and to one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import OwnServers
from tests.servers import FAMILY
from tests.soak import report
from tests.soak.facts import History
from tests.soak.minorities import WithoutAMinority
from tests.soak.nemesis import EVERYWHERE, Fault
from tests.soak.profiles import PROFILES
from tests.soak.run import Settings, soak


def run(
    profile: str, kind: str, own_server: OwnServers, directory: Path, seconds: float, **options: Any
) -> History:
    """Run it for so long, or longer where it takes longer to do enough; and check it."""
    server = own_server(PROFILES[profile].servers[kind])
    history = soak(Settings.of(profile, seconds, 1, **options), server, directory)
    report.demand(history, directory)
    return history


def test_a_crash_in_the_pause_of_a_failover(own_server: OwnServers, tmp_path: Path) -> None:
    run("failover", "postgresql", own_server, tmp_path, 0, ttl=10.0)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_member_of_a_quorum_that_dies_and_forgets(
    kind: str, own_server: OwnServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short form of these soaks: of what happens to members, only this."""

    def kinds(nemesis: WithoutAMinority) -> dict[str, dict[str, Fault]]:
        members = all_of_them(nemesis)[EVERYWHERE]
        shown = members.keys() & {"member killed", "member restored"}
        return {EVERYWHERE: {name: members[name] for name in sorted(shown)}}

    all_of_them = WithoutAMinority.kinds
    monkeypatch.setattr(WithoutAMinority, "kinds", kinds)
    run("quorum", kind, own_server, tmp_path, 0, ttl=2.0, holds=50)


@pytest.mark.parametrize("kind", FAMILY)
def test_tries_beside_a_loop_that_waits_in_the_server(
    kind: str, own_server: OwnServers, tmp_path: Path
) -> None:
    run("user-locks", kind, own_server, tmp_path, 5, holds=200)


@pytest.mark.parametrize("kind", PROFILES["queues"].servers)
def test_many_that_come_to_wait_at_once(kind: str, own_server: OwnServers, tmp_path: Path) -> None:
    run("queues", kind, own_server, tmp_path, 5, holds=60)


def test_waits_that_end_in_vain(own_server: OwnServers, tmp_path: Path) -> None:
    run("leaves", "postgresql", own_server, tmp_path, 0)


@pytest.mark.parametrize("kind", PROFILES["fair"].servers)
def test_equal_processes(kind: str, own_server: OwnServers, tmp_path: Path) -> None:
    run("fair", kind, own_server, tmp_path, 5, holds=300)


@pytest.mark.parametrize("kind", PROFILES["hand-offs"].servers)
def test_names_that_are_handed_off_beside_the_dying(
    kind: str, own_server: OwnServers, tmp_path: Path
) -> None:
    run("hand-offs", kind, own_server, tmp_path, 5, holds=300, deaths=1)
