"""docs/contract.md: each promise names tests that show it, and each of them is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "contract.md"

HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
# "- `tests/test_it.py::test_that`", and whatever is said of it after a colon.
ITEM = re.compile(r"- `([^`\s]+)`(?:: .+)?")


class Promise(NamedTuple):
    title: str
    text: str
    shown_by: list[str]

    @property
    def number(self) -> int | None:
        found = re.match(r"(\d+)\. \S", self.title)
        return int(found[1]) if found else None


def promises(page: str) -> list[Promise]:
    """Every section of the page is one; its list comes last in it."""
    _, *parts = HEADING.split(page)
    found = []
    for title, section in zip(parts[::2], parts[1::2], strict=True):
        text, _, shown_by = section.partition("\nShown by:\n")
        found.append(Promise(title, text.strip(), [line for line in shown_by.splitlines() if line]))
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of a file's tests, from its text alone."""
    return frozenset(
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_"
    )


def is_there(test: str) -> bool:
    """Whether a test exists, or at least one in a file or a folder, which ends with a slash."""
    place, _, name = test.partition("::")
    path = ROOT / place
    if not place.startswith("tests/"):
        return False
    if place.endswith("/"):
        return not name and any(names_in(file) for file in path.rglob("test_*.py"))
    if not (path.name.startswith("test_") and path.suffix == ".py" and path.is_file()):
        return False
    return name in names_in(path) if "::" in test else bool(names_in(path))


def wrong(page: str) -> Iterator[str]:
    found = promises(page)
    numbers = [promise.number for promise in found]
    if not found or numbers != list(range(1, len(found) + 1)):
        yield f"the promises have the numbers {numbers}"
    for promise in found:
        if not re.match(r"\*\*[^*]+\.\*\*", promise.text):
            yield f"{promise.title!r} does not begin with a sentence in bold"
        if not promise.shown_by:
            yield f"{promise.title!r} is shown by no test"
        for line in promise.shown_by:
            item = ITEM.fullmatch(line)
            if item is None:
                yield f"{promise.title!r} has a line that names no test: {line!r}"
            elif not is_there(item[1]):
                yield f"{promise.title!r} names a test that is not there: {item[1]}"
            elif promise.shown_by.count(line) > 1:
                yield f"{promise.title!r} names a test twice: {item[1]}"


def test_every_promise_is_shown() -> None:
    page = PAGE.read_text()
    assert list(wrong(page)) == []
    assert len(promises(page)) == 23


HERE = "tests/test_contract_page.py"
GOOD = f"""# The contract

## 1. One

**It is one.** That is all.

Shown by:

- `{HERE}::test_what_is_right`
- `{HERE}`: the whole file
- `tests/waiting/`

## 2. Two

**It is two.**

Shown by:

- `{HERE}::test_what_is_wrong`
"""


def test_what_is_right() -> None:
    assert list(wrong(GOOD)) == []
    assert [len(promise.shown_by) for promise in promises(GOOD)] == [3, 1]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (GOOD, "# The contract\n", "the numbers []"),
        ("## 2. Two", "## 3. Two", "the numbers [1, 3]"),
        ("## 2. Two", "## Two", "the numbers [1, None]"),
        ("**It is two.**", "It is two.", "in bold"),
        (f"- `{HERE}::test_what_is_wrong`\n", "", "shown by no test"),
        (f"Shown by:\n\n- `{HERE}::test_what_is_wrong`\n", "", "shown by no test"),
        (f"- `{HERE}`: the whole file", "- the whole file", "names no test"),
        (f"- `{HERE}`: the whole file", f"- `{HERE}::test_what_is_right`", "a test twice"),
        ("::test_what_is_wrong", "::test_nothing", "is not there"),
        ("::test_what_is_wrong", "::", "is not there"),
        ("::test_what_is_wrong", "::is_there", "is not there"),
        (f"{HERE}::test_what_is_wrong", "tests/test_nothing.py", "is not there"),
        (f"{HERE}::test_what_is_wrong", "tests/support.py", "is not there"),
        (f"{HERE}::test_what_is_wrong", "docs/contract.md", "is not there"),
        ("tests/waiting/", "tests/nowhere/", "is not there"),
        ("tests/waiting/", "tests/waiting", "is not there"),
        ("tests/waiting/", "tests/waiting/::test_what_is_right", "is not there"),
    ],
)
def test_what_is_wrong(old: str, new: str, said: str) -> None:
    assert GOOD.count(old) == 1
    assert any(said in complaint for complaint in wrong(GOOD.replace(old, new)))
