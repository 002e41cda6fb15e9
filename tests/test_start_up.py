"""What an import brings with it: no more than is needed before the first lock is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dblock

#: What takes long, and is imported where it is of use.
LATER = (
    *("sqlalchemy.orm", "sqlalchemy.dialects", "sqlalchemy.ext", "alembic"),
    *("psycopg", "pymysql", "dblock.aio", "dblock.schema", "dblock.doctor", "dblock.cli"),
    *("dblock.counter", "dblock.retrying", "rich", "click", "typer"),
)


def modules_after(statement: str) -> set[str]:
    code = f"import sys; import sqlalchemy; {statement}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(said.split())


@pytest.mark.parametrize("statement", ["import dblock", "from dblock import Locks, RetryPolicy"])
def test_what_takes_long_is_not_imported(statement: str) -> None:
    alone = modules_after("pass")
    brought = modules_after(statement) - alone
    assert "dblock.locks" in brought
    late = {one for one in brought if any(f"{one}.".startswith(f"{kind}.") for kind in LATER)}
    assert late <= {"sqlalchemy.dialects._typing"}


def test_all_that_is_public_is_there() -> None:
    for name in dblock.__all__:
        assert getattr(dblock, name).__name__ == name
        assert name in dir(dblock)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        dblock.nothing  # noqa: B018
