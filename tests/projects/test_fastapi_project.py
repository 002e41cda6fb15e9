"""FastAPI on each driver: docs/fastapi.md, in an empty directory, served by two processes."""

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
from sqlalchemy import create_engine, make_url, text

from dblock import Locks
from tests.conftest import NewDatabase, OwnServers
from tests.servers import PostgreSQL
from tests.support import LONG, SECONDS
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "fastapi.md"


def follow() -> None:
    """Run the page's commands, but the last one: it is how :func:`served` serves."""
    lines = [line[2:] for block in blocks(PAGE, "console") for line in block.splitlines()]
    install, upgrade, serve = lines
    assert install.startswith("pip install ")
    assert serve.startswith("uvicorn shop:app ")
    command = shlex.split(os.path.expandvars(upgrade))
    subprocess.run([sys.executable, "-m", *command], check=True)


@contextmanager
def served(directory: Path, module: str = "shop", *, failures: int = 0) -> Iterator[httpx.Client]:
    """Serve what is in a directory; yield a client for it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", f"{module}:app", "--port", "0", "--no-use-colors"],
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
    assert rest.count("Exception in ASGI application") == failures, rest
    assert failures or "Traceback" not in rest, rest
    assert "Warning" not in rest, rest


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_the_page_word_for_word(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, driver: str
) -> None:
    url = new_database("postgresql").url
    theirs = make_url(url).set(drivername=f"postgresql+{driver}")
    monkeypatch.setenv("DATABASE_URL", theirs.render_as_string(hide_password=False))
    follow()
    (block,) = blocks(PAGE, "python")
    (tmp_path / "shop.py").write_text(block)
    (starlette,) = blocks(PAGE, "python starlette")
    (tmp_path / "stall.py").write_text(starlette)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id integer PRIMARY KEY, charged integer)"))
        connection.execute(text("INSERT INTO orders VALUES (42, 0), (43, 0)"))
    with (
        served(tmp_path) as client,
        served(tmp_path) as another,
        served(tmp_path, "stall") as stall,
        Locks(url) as others,
    ):
        fences = [each.post("/report").json()["number"] for each in (client, another, stall)]
        assert fences == sorted(set(fences))
        for number in range(1, 4):
            assert client.post("/orders/42/charge").json() == {"charged": 42}
            with engine.begin() as connection, others.row("order:42", on=connection, wait=0):
                charged = connection.execute(text("SELECT charged FROM orders WHERE id = 42"))
                assert charged.scalar_one() == number  # there when the response was
        assert client.post("/orders/forty-two/charge").status_code == 422

        with others.lease("report", ttl=LONG):
            for each in (client, stall):
                refused = each.post("/report")
                assert refused.status_code == 409
                assert refused.json() == {"detail": "busy, try again later"}
                assert int(refused.headers["Retry-After"])
        assert another.post("/report").status_code == 200

        with engine.begin() as connection, others.row("order:42", on=connection):
            assert client.post("/orders/42/charge").status_code == 409
            assert client.post("/orders/43/charge").status_code == 200
        assert another.post("/orders/42/charge").status_code == 200
    engine.dispose()


def test_a_database_that_is_away(
    own_server: OwnServers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = own_server(PostgreSQL)
    monkeypatch.setenv("DATABASE_URL", server.url)
    follow()
    (block,) = blocks(PAGE, "python")
    (tmp_path / "shop.py").write_text(block)
    with served(tmp_path) as client:
        assert client.post("/report").status_code == 200
        server.stop()
        for _ in range(2):  # on the connection that there was, and on a new one
            refused = client.post("/report")
            assert refused.status_code == 503
            assert int(refused.headers["Retry-After"])
        server.start()
        assert client.post("/report").status_code == 200


def test_a_commit_that_fails_is_told(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = new_database("postgresql", migrated=True)
    monkeypatch.setenv("DATABASE_URL", database.url)
    engine = create_engine(database.url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE known (n integer PRIMARY KEY)"))
        deferred = "REFERENCES known DEFERRABLE INITIALLY DEFERRED"
        connection.execute(text(f"CREATE TABLE orders (id integer, charged integer {deferred})"))
        connection.execute(text("INSERT INTO known VALUES (0), (1)"))
        connection.execute(text("INSERT INTO orders VALUES (42, 0)"))
    engine.dispose()
    (block,) = blocks(PAGE, "python")
    (tmp_path / "shop.py").write_text(block)
    with served(tmp_path, failures=1) as client:
        assert client.post("/orders/42/charge").status_code == 200
        assert client.post("/orders/42/charge").status_code == 500
