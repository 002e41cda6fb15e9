"""Writing into the mutants' source the schedules in which they die.

A search finds them: ``python -m tests.simulation.teeth --search SECONDS``.
"""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import indent, wrap

FOLDER = Path(__file__).parent / "catalogue"
FIELD = "dies_in"
WIDTH = 100  # of a line of source


def record(name: str, line: str | None, folder: Path = FOLDER) -> None:
    """Write the field of a mutant, or remove it if there is no line any more."""
    for file in sorted(folder.glob("*.py")):
        before = file.read_text()
        if name in before and (call := _call(name, before)):
            file.write_text(_with_field(before, call, line))
            return
    raise LookupError(f"no file in {folder} has a Mutant({name!r}, ...)")


def _call(name: str, text: str) -> ast.Call | None:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name("Mutant"), args=[ast.Constant(value=first), *_]):
                if first == name:
                    return node
    return None


def _with_field(text: str, call: ast.Call, line: str | None) -> str:
    lines = text.splitlines(keepends=True)
    assert call.end_lineno is not None
    at = slice(call.end_lineno - 1, call.end_lineno - 1)  # before the closing parenthesis
    for field in call.keywords:
        if field.arg == FIELD:
            at = slice(field.lineno - 1, field.value.end_lineno)
    lines[at] = [_field(line, call.col_offset + 4)] if line else []
    return "".join(lines)


def _field(line: str, columns: int) -> str:
    room = WIDTH - columns - len(f'{FIELD}=" ",')
    parts = wrap(line, room, break_on_hyphens=False, break_long_words=False)
    broken = ' "\n"'.join(parts)
    return indent(f'{FIELD}="{broken}",\n', " " * columns)
