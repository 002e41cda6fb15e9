"""What MkDocs does with the pages: their info strings, and the reference made of the docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from types import ModuleType
from typing import Any

import click

from dblock.cli.app import app

# For the strategies' own use; and what tells that a constructor is.
INSIDE = {"try_within", "leave", "current", "excludes_all", "begin_body", "end_body", "run", "here"}
MADE_BY_OTHERS = {"database", "locks", "job", "store"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""
    # "```python settings" tells the tests where a snippet belongs; to Markdown it is no language.
    markdown = re.sub(r"^```(\w+) .+$", r"```\1", markdown, flags=re.MULTILINE)
    markdown = NAMES.sub(names, markdown)
    return re.sub(r"^<!-- help of dblock -->$", commands, markdown, flags=re.MULTILINE)


#: Stands for the reference of a module: of the names given, or of all that it has for users.
NAMES = re.compile(r"^<!-- names of ([\w.]+)(?:: ([\w ]+))? -->$", re.MULTILINE)


def names(match: re.Match[str]) -> str:
    """Return the reference of a module's public names."""
    module = importlib.import_module(match[1])
    asked = match[2].split() if match[2] else module.__all__
    return "\n\n".join(part for name in asked for part in entry(module, name))


def entry(module: ModuleType, name: str) -> Iterator[str]:
    thing = getattr(module, name)
    yield f"## {name}"
    yield from about(thing, name)
    for own, member in members(thing) if inspect.isclass(thing) else ():
        yield f"### {name}.{own}"
        yield from about(member, own)


def commands(_: re.Match[str]) -> str:
    """Return what the command line says of itself."""
    told = [("dblock", app)] + [(f"dblock {name}", one) for name, one in app.commands.items()]
    return "\n\n".join(f"## {name}\n\n```text\n{usage(name, one)}\n```" for name, one in told)


def usage(name: str, command: click.Command) -> str:
    return command.get_help(click.Context(command, info_name=name, max_content_width=88))


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class of dblock's has for users, what it inherits from others of dblock's first."""
    found: dict[str, Any] = {}
    for own in reversed(kind.__mro__):
        if own.__module__.startswith("dblock"):
            found |= vars(own)
    for name, member in found.items():
        public = not name.startswith("_") and name not in INSIDE and inspect.getdoc(member)
        if public and (inspect.isroutine(member) or isinstance(member, property)):
            yield name, member


def about(thing: Any, name: str) -> Iterator[str]:
    """The signature, where a user has use for it, and the docstring."""
    if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Exception | Enum)):
        signature = inspect.signature(thing)
        if not (inspect.isclass(thing) and MADE_BY_OTHERS & set(signature.parameters)):
            told = re.sub(r"(?<=: |> )'([^']*)'", r"\1", str(signature)).replace("(self, ", "(")
            yield f"```python\n{name}{told.replace('(self)', '()')}\n```"
    doc = inspect.getdoc(thing) or ""
    doc = re.sub(r":\w+:`~?\.*([\w.]+)`", r"`\1`", doc).replace("``", "`").replace("::\n", ":\n")
    yield re.sub(r"^(`.+)\n {4}(?=\S)", r"\1\n:   ", doc, flags=re.MULTILINE)
