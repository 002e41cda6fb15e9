"""The site's reference has an entry for all that a user meets."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dblock
from dblock import Leadership
from docs.hooks import WIDTH, documented, linked, members, signature, where

#: Where a type's fields are its values: what they hold comes back too.
FIELDS = ("__dataclass_fields__", "_fields")


def classes() -> set[str]:
    """Return the names of all classes of dblock."""
    files = Path(dblock.__path__[0]).rglob("*.py")
    return {name for file in files for name in re.findall(r"^class (\w+)", file.read_text(), re.M)}


def given(thing: Any) -> Iterator[str]:
    """Yield the types that a user gets: a thing returns them, or calls a function with them."""
    if isinstance(thing, property):
        thing = thing.fget
    if inspect.isclass(thing) and any(hasattr(thing, fields) for fields in FIELDS):
        yield from map(str, inspect.get_annotations(thing).values())
    if not callable(thing):
        return
    told = inspect.signature(thing)
    if not inspect.isclass(thing):
        yield str(told.return_annotation)
    for parameter in told.parameters.values():
        yield from re.findall(r"Callable\[(\[.*?\])", str(parameter.annotation))


def entries() -> Iterator[tuple[str, Any]]:
    """Yield what has an entry, and its members."""
    for thing in documented():
        if inspect.isclass(thing):
            yield from members(thing)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            yield thing.__name__, thing


def test_a_signature_is_one_line_or_one_line_a_parameter() -> None:
    for name, thing in entries():
        told = signature(thing, name)
        if told is None or told.startswith("class ") or isinstance(thing, property):
            continue
        *before, last = told.splitlines()
        assert all(len(line) <= WIDTH for line in before)
        assert not re.search(r"'|<|ForwardRef|[a-z]\.[A-Za-z]", told), told
        function = ast.parse(f"def {told}: ...").body[0]
        assert isinstance(function, ast.FunctionDef)
        if before:
            given = function.args
            named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            parameters = [*named, *filter(None, (given.vararg, given.kwarg))]
            marks = [line for line in before if line.strip() in ("*,", "/,")]
            assert len(before) == 1 + len(parameters) + len(marks)
        else:
            assert len(last) <= WIDTH


def test_an_inherited_member_has_one_entry() -> None:
    for kind in filter(inspect.isclass, documented()):
        for base in kind.__mro__[1:]:
            if base in documented():
                own, inherited = dict(members(kind)), dict(members(base))
                assert not [name for name in own if own[name] is inherited.get(name)], kind


def test_a_member_for_dblock_itself_has_no_entry() -> None:
    """However its docstring is broken into lines."""
    assert "begin" not in dict(members(Leadership))


@pytest.mark.parametrize(
    ("doc", "links"),
    [
        ("Raises NotHeld if nobody holds it.", ["[NotHeld](errors.md#notheld)"]),
        ("a RetryPolicy, a ``LockState``", ["locks.md#retrypolicy", "jobs.md#lockstate"]),
        (":meth:`acquire`, :meth:`dblock.Locks.row`", ["#leaseacquire", "locks.md#locksrow"]),
        ("Once, a Lease, a ValueError, ``LockLost.x``", []),
        ("As :class:`threading.Semaphore`, ``raise LockLost``::\n\n    raise NotHeld", []),
        (">>> raise NotHeld", []),
    ],
)
def test_names_of_errors_and_classes_are_links(doc: str, links: list[str]) -> None:
    text = linked(doc, "Lease", "lease.md")
    assert text.count("](") == len(links)
    assert all(link in text for link in links)


def test_all_that_users_import_has_an_entry() -> None:
    assert [name for name in dblock.__all__ if where(name, "locks.md") is None] == []


def test_all_that_users_get_has_an_entry() -> None:
    ours = classes()
    missing = set()
    for thing in documented():
        own = [member for _, member in members(thing)] if inspect.isclass(thing) else []
        for one in (thing, *own):
            for types in given(one):
                for name in re.findall(r"\w+", types):
                    if name in ours and where(name, "locks.md") is None:
                        missing.add((name, getattr(one, "__qualname__", one)))
    assert missing == set()
