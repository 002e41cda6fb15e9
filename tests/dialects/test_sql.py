"""What is really sent to each database: a page of statements for each, kept in ``sql``.

The page of Galera has the statements that are others there than on another MariaDB. That of the
functions has those that create them, in a schema of their own, and that drop them.

If you change a statement, write the pages again (``python -m tests.golden sql``), and read the
change.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from dblock.dialects import DIALECTS
from dblock.io.target import resolve
from dblock.policy import Timeouts
from tests.protocol.test_commands import Case, cases

PAGES = Path(__file__).parent / "sql"
KINDS = (*sorted(DIALECTS), "galera")
WRITE = "read what has changed: python -m tests.golden sql writes the pages"


def told(case: Case) -> str:
    """Return a statement as people read it, under what it is called."""
    query, lines = case.query, case.query.sql.split("\n")
    first, rest = lines[0], dedent("\n".join(lines[1:]))
    head = f"-- {query.kind}"
    if query.patience is not None:
        head += f", waits {query.patience:g} s"
    if not query.durable:
        head += ", a crash may undo it"
    return "\n".join(line.rstrip() for line in (head, first, *rest.split("\n"), ""))


def functions() -> str:
    url = "postgresql+psycopg://db/app"
    _, dialect = resolve(url, timeouts=Timeouts(), schema="locking", prefix="dblock_")
    made = (*dialect.create_functions(), *dialect.drop_functions(), *dialect.drop_gate())
    return "".join(f"{statement};\n\n" for statement in made)


def page(kind: str) -> str:
    usual = {told(case) for case in cases() if case.page == "mariadb"} if kind == "galera" else ()
    statements = (told(case) for case in cases() if case.page == kind)
    return "\n".join(statement for statement in statements if statement not in usual)


def pages() -> dict[Path, str]:
    return {PAGES / f"{kind}.sql": page(kind) for kind in KINDS} | {
        PAGES / "functions.sql": functions()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent(kind: str) -> None:
    assert page(kind) == (PAGES / f"{kind}.sql").read_text(), WRITE


def test_the_functions() -> None:
    assert functions() == (PAGES / "functions.sql").read_text(), WRITE
