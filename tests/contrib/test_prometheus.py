"""Prometheus: the page's recipe in a process of its own, which is asked as Prometheus asks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import NewDatabase
from tests.support import SECONDS
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "operators.md"

LOCKING = """
import urllib.request
from dblock import LockLost, Locks

with Locks(os.environ["DATABASE_URL"]) as locks:
    with locks.lease("order:42") as lease:
        locks.lease("order:42").acquire(blocking=False)
        lease.renew()
    lease.acquire()
    locks.release("order:42", force=True)
    try:
        lease.release()
    except LockLost:
        pass
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
    print(answer.read().decode())
server.shutdown()
"""


def test_the_pages_metrics(new_database: NewDatabase, tmp_path: Path) -> None:
    (recipe,) = blocks(PAGE, "python prometheus")
    (tmp_path / "app.py").write_text(recipe + LOCKING)
    url = new_database("sqlite", migrated=True).url
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=tmp_path,
        env={**os.environ, "DATABASE_URL": url, "METRICS_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    samples = dict(re.findall(r"^(dblock_\w+\{.*\}) (.*)$", done.stdout, re.MULTILINE))
    names = {sample.partition("{")[0] for sample in samples}
    asked = set(re.findall(r"dblock_\w+(?=[\[{ ]|$)", "".join(blocks(PAGE, "promql"))))
    assert asked - {"dblock_name"} <= names
    assert {"dblock_losses_total", "dblock_acquire_duration_seconds_bucket"} <= asked

    def value(name: str, *labels: str) -> float:
        (found,) = [
            float(value)
            for sample, value in samples.items()
            if sample.startswith(name + "{") and all(label in sample for label in labels)
        ]
        return found

    order, refused = 'dblock_name="order"', 'dblock_outcome="refused"'
    assert value("dblock_losses_total", order, 'dblock_reason="forced"') == 1
    assert value("dblock_acquire_duration_seconds_count", order, refused) == 1
    # Buckets for seconds, not for the SDK's milliseconds.
    for boundary in ("0.001", "3600", "+Inf"):
        value("dblock_acquire_duration_seconds_bucket", refused, f'le="{boundary}')
