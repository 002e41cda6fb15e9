"""FastAPI on psycopg: docs/fastapi.md, in an empty directory, served by two processes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import create_engine

from dblock import Locks
from tests.conftest import NewDatabase
from tests.support import LONG, SECONDS
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "fastapi.md"


def follow() -> None:
    """Run the page's commands."""
    (block,) = blocks(PAGE, "console")
    install, *rest = [line[2:] for line in block.splitlines()]
    assert install.startswith("pip install ")
    for line in rest:
        command = shlex.split(os.path.expandvars(line))
        subprocess.run([sys.executable, "-m", *command], check=True)


@contextmanager
def served(directory: Path) -> Iterator[httpx.Client]:
    """Serve what is in a directory; yield a client for it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "shop:app", "--port", "0", "--no-use-colors"],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = ""
    try:
        for line in process.stderr:  # it is told there where it listens, and why it does not
            said += line
            if found := re.search(r"running on (http://\S+)", line):
                break
        else:
            pytest.fail(said)
        with httpx.Client(base_url=found[1], timeout=SECONDS, trust_env=False) as client:
            yield client
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=SECONDS)
    assert "Application shutdown complete" in rest, rest
    assert "Traceback" not in rest, rest
    assert "Warning" not in rest, rest


def test_the_page_word_for_word(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = new_database("postgresql").url
    monkeypatch.setenv("DATABASE_URL", url)
    follow()
    (block,) = blocks(PAGE, "python")
    (tmp_path / "shop.py").write_text(block)
    engine = create_engine(url)
    with served(tmp_path) as client, served(tmp_path) as another, Locks(url) as others:
        fences = [each.post("/report").json()["number"] for each in (client, another, client)]
        assert fences == sorted(set(fences))
        assert client.post("/orders/42/charge").json() == {"charged": 42}
        assert client.post("/orders/forty-two/charge").status_code == 422

        with others.lease("report", ttl=LONG):
            refused = client.post("/report")
            assert refused.status_code == 409
            assert refused.json() == {"detail": "busy, try again later"}
        assert another.post("/report").status_code == 200

        with engine.begin() as connection, others.row("order:42", on=connection):
            assert client.post("/orders/42/charge").status_code == 409
            assert client.post("/orders/43/charge").status_code == 200
        assert another.post("/orders/42/charge").status_code == 200
    engine.dispose()
