"""A Patroni cluster: nobody gets a name twice, whatever happens to its primary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import make_url

from dblock import Lease, LockLost, Locks
from dblock.schema import upgrade
from tests.clusters.patroni import FRONTS, Patroni
from tests.conftest import EVER, find_or_skip
from tests.servers import execute
from tests.servers.reaper import processes
from tests.soak import report
from tests.soak.clustered import Fenced
from tests.soak.nemesis import EVERYWHERE, Fault
from tests.soak.profiles import PROFILES
from tests.soak.run import Settings, soak
from tests.support import eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def synchronous() -> Iterator[Patroni]:
    with find_or_skip(lambda: Patroni("sync", cuttable=True)) as cluster:
        yield cluster


def test_holders_are_told_what_has_happened(synchronous: Patroni) -> None:
    """However they come to the primary. A crash loses no lease, a change of the primary each."""
    synchronous.create_database("told")
    upgrade(synchronous.url_for("told"))
    held: list[Lease] = []
    with ExitStack() as stack:
        for front in FRONTS:
            url = make_url(synchronous.through(front)).set(database="told")
            locks = stack.enter_context(Locks(url.render_as_string(hide_password=False)))
            held.append(locks.lease(front, ttl=EVER, renew=False))
            assert held[-1].acquire()
        synchronous.kill_database()
        synchronous.settle()
        for lease in held:
            lease.renew()
        synchronous.switch_over()
        synchronous.settle()
        for lease in held:
            with pytest.raises(LockLost) as lost:
                lease.renew()
            assert lost.value.reason == "failover"


class Brief(Fenced):
    """Without those that others contain: a machine's death is its freezing without the return."""

    def kinds(self) -> dict[str, dict[str, Fault]]:
        faults = super().kinds()[EVERYWHERE]
        left_out = ("two switchovers", "machine killed", "machine cut off")
        return {EVERYWHERE: {name: faults[name] for name in faults if name not in left_out}}


def test_a_synchronous_cluster_keeps_every_promise(
    synchronous: Patroni, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two primaries too, by a hung Patroni or a cut cable: the old one cannot commit, so it grants
    nothing."""
    brief = replace(PROFILES["patroni-sync"], nemesis=Brief)
    monkeypatch.setitem(PROFILES, "patroni-sync", brief)
    history = soak(Settings.of("patroni-sync", 0, 1), synchronous, tmp_path)
    report.demand(history, tmp_path)


def test_two_primaries_without_a_watchdog(tmp_path: Path) -> None:
    """What docs/clusters.md warns of: a name has two holders, and guards keep the data right."""
    with find_or_skip(lambda: Patroni("async")) as cluster:
        history = soak(Settings.of("patroni-hung", 0, 1), cluster, tmp_path)
    report.demand(history, tmp_path, fenced=False)


def test_a_cluster_started_by_hand_ends_with_its_process() -> None:
    find_or_skip(lambda: Patroni("async")).close()
    command = [sys.executable, "-m", "tests.clusters", "patroni", "--mode", "async"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in FRONTS:
            _, url = process.stdout.readline().split()
            assert execute(url, "SELECT pg_is_in_recovery()") == [(False,)]
        nodes = [process.stdout.readline().split() for _ in range(2)]
        directories = [Path(directory) for _, _, directory, _ in nodes]
        assert all(processes(directory.name) for directory in directories)
        os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not any(processes(directory.name) for directory in directories))
    eventually(lambda: not any(directory.exists() for directory in directories))
