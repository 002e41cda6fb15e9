"""`dblock metrics`: what Prometheus reads, and what the dashboard shows of it."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path

from dblock import Locks
from tests.cli.conftest import Here, Program
from tests.conftest import Database
from tests.support import ROUNDING, Threads, eventually

DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana" / "dblock.json"
ODD = 'a "quoted" \\ name\nof two lines ☾'

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (-?\d+\.\d+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\["\\n])*)"(?:,|$)')
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> Samples:
    """Read the format as it is defined: every line has to be right, and every name declared."""
    found: Samples = {}
    declared: list[str] = []
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            declared.append(line.split()[2])
        elif line.startswith("# TYPE "):
            kind = "counter" if declared[-1].endswith("_total") else "gauge"
            assert line.split()[2:] == [declared[-1], kind]
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample, line
            name, labels, value = sample.groups()
            assert name == declared[-1]
            pairs = _LABEL.findall(labels or "")
            assert "".join(_LABEL.sub("", labels or "")) == ""
            found[name, tuple((key, unescaped(told)) for key, told in pairs)] = float(value)
    assert len(set(declared)) == len(declared)
    return found


def unescaped(told: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), told)


def test_metrics(here: Here, db: Database, threads: Threads) -> None:
    dblock = here.on(db)

    def wait() -> None:
        with Locks(db.url) as locks, locks.lease(ODD):
            pass

    with Locks(db.url) as locks, locks.lease(ODD, ttl=600):
        with locks.lease("other"):
            pass

        @locks.cron("nightly", at_least=600)
        def nightly() -> None:
            raise KeyError("of the job")

        with contextlib.suppress(KeyError):
            nightly()
        threads.start(wait)
        eventually(lambda: bool(locks.show(ODD).waiters))
        code, out, err = dblock("metrics")
        assert (code, err) == (0, "")
        run = locks.last_run("nightly")
    threads.join()
    found = read(out)
    of = {name: [key for key, _ in found if key == name] for name, _ in found}
    assert found["dblock_locks", (("state", "held"),)] == 1
    assert found["dblock_locks", (("state", "done"),)] == 1
    assert found["dblock_waiters", ()] == 1
    assert found["dblock_truncated", ()] == 0
    odd, job = (("name", ODD),), (("name", "nightly"),)
    assert found["dblock_lock_waiters", odd] == 1
    assert found["dblock_lock_held_seconds", odd] >= 0
    assert 0 < found["dblock_lock_expires_seconds", odd] <= 600
    assert found["dblock_lock_state", (*odd, ("state", "held"))] == 1
    assert found["dblock_lock_state", (*job, ("state", "done"))] == 1
    assert ("dblock_lock_waiters", (("name", "other"),)) not in found
    assert run is not None
    assert run.ended_at is not None
    for name, at in (("start", run.started_at), ("end", run.ended_at)):
        told = found[f"dblock_job_last_{name}_timestamp_seconds", job]
        assert abs(told - at.timestamp()) < 0.001
    assert found["dblock_job_last_exit_status", job] == 1
    assert found["dblock_job_last_outcome", (*job, ("outcome", "failed"))] == 1
    assert found["dblock_job_last_outcome", (*job, ("outcome", "succeeded"))] == 0
    shown = re.findall(r"dblock_\w+", DASHBOARD.read_text())
    assert shown
    assert set(shown) <= set(of)


def test_so_many_names_at_most(sqlite: Program, here: Here) -> None:
    names = [f"lock {number}" for number in range(5)]
    with Locks(sqlite.environment["DBLOCK_URL"]) as locks:
        for name in names:
            locks.lease(name, renew=False).acquire()
            time.sleep(2 * ROUNDING)  # else two may have begun at the same moment
            locks.cron(f"job of {name}")(lambda: None)()
        code, out, err = sqlite("metrics", "--limit", "3")
    assert (code, err) == (0, "")
    found = read(out)
    assert found["dblock_locks", (("state", "held"),)] == 5
    assert found["dblock_truncated", ()] == 1
    for metric in ("dblock_lock_waiters", "dblock_job_last_exit_status"):
        assert len([1 for name, _ in found if name == metric]) == 3
    assert ("dblock_job_last_exit_status", (("name", "job of lock 4"),)) in found


def test_the_dashboard_is_one() -> None:
    board = json.loads(DASHBOARD.read_text())
    assert [panel["id"] for panel in board["panels"]] == list(range(1, len(board["panels"]) + 1))
    assert all(panel["targets"][0]["expr"] for panel in board["panels"])
