"""dblock's own source, in which mutants find their place by name and not by line."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = "dblock"


class Place(NamedTuple):
    """What a name defines: the lines of a file, from the first up to the one before the last."""

    file: str  # as seen from the root
    first: int
    last: int


class Code:
    """All modules under a root, as they are now: ``texts`` by file, and what each name defines."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts: dict[str, str] = {}
        #: The names of the base classes, as the class statement has them, by the class's name.
        self.bases: dict[str, list[str]] = defaultdict(list)
        self._places: dict[str, list[Place]] = defaultdict(list)
        self._by_last_part: dict[str, list[str]] = defaultdict(list)
        for path in sorted((root / PACKAGE).rglob("*.py")):
            self._read(path, path.relative_to(root))
        for name in self._places:
            self._by_last_part[name.rpartition(".")[2]].append(name)

    def _read(self, path: Path, file: Path) -> None:
        text = self.texts[str(file)] = path.read_text()
        parts = file.with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._places[module].append(Place(str(file), 0, text.count("\n") + 1))
        tree = ast.parse(text)
        for name, first, last in defined(tree, module):
            self._places[name].append(Place(str(file), first, last))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.bases[node.name] += map(base_name, node.bases)

    @property
    def names(self) -> Iterable[str]:
        """The qualified names of all modules, classes, functions and values."""
        return self._places

    def ending(self, name: str) -> list[str]:
        """Return the qualified names that end so: `Lease.renew`. A whole name is the only one."""
        if name in self._places:
            return [name]
        candidates = self._by_last_part.get(name.rpartition(".")[2], [])
        return [full for full in candidates if f".{full}".endswith(f".{name}")]

    def file(self, name: str) -> str:
        return self.find(name)[0].file

    def find(self, name: str) -> list[Place]:
        """Return the lines of a name, or of the only name that ends so: `Lease.renew`."""
        found = self.ending(name)
        if len(found) != 1:
            raise LookupError(f"{name!r} names {', '.join(found) or 'nothing'}")
        return self._places[found[0]]

    def search(self, name: str, old: str) -> list[Place]:
        """Return the lines of each time that ``old`` occurs in what ``name`` defines."""
        pattern, found = in_any_layout(old), list[Place]()
        for file, first, last in self.find(name):
            lines = self.texts[file].splitlines(keepends=True)[first:last]
            for match in pattern.finditer("".join(lines)):
                before, within = match.string[: match.start()], match[0]
                start = first + before.count("\n")
                found.append(Place(file, start, start + within.count("\n") + 1))
        return found

    def replace(self, name: str, old: str, new: str, count: int = 1) -> tuple[str, str]:
        """Return the file of what ``name`` defines, and its text with ``new`` there for ``old``."""
        places = self.find(name)
        file = places[0].file
        lines = self.texts[file].splitlines(keepends=True)
        pattern, found = in_any_layout(old), 0

        def put(match: re.Match[str]) -> str:
            before = match.string[: match.start()].rpartition("\n")[2]
            indent = before[: len(before) - len(before.lstrip())]
            return new.replace("\n", f"\n{indent}")

        for place in reversed(places):
            text, times = pattern.subn(put, "".join(lines[place.first : place.last]))
            lines[place.first : place.last] = [text]
            found += times
        if found != count:
            raise LookupError(f"{name} in {file} has {found} times, not {count}: {old!r}")
        return file, "".join(lines)


def defined(within: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
    """The names that a module or a class gives to functions, classes and values, and their lines.

    What is inside a function is a part of it.
    """
    for node in ast.iter_child_nodes(within):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                full = f"{prefix}.{node.name}"
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                yield full, first - 1, node.end_lineno or first
                if isinstance(node, ast.ClassDef):
                    yield from defined(node, full)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{prefix}.{name}", node.lineno - 1, node.end_lineno or node.lineno
            case _:
                yield from defined(node, prefix)


def base_name(base: ast.expr) -> str:
    """Return the name of a base class without its module and its type arguments."""
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


def in_any_layout(fragment: str) -> re.Pattern[str]:
    """What is the same to a reader: broken into lines, indented and commented in any way."""
    gap, pattern = r"(?:\s|#.*$)*", ""
    for token in re.findall(r"\w+|[^\w\s]", fragment):
        if token in ")]}":
            pattern += f"(?:,{gap})?"
        pattern += rf"\b{token}\b" if re.match(r"\w", token) else re.escape(token)
        pattern += gap
    return re.compile(pattern.removesuffix(gap), re.MULTILINE)
