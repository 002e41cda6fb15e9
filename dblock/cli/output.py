"""Text for terminals: names and labels come from others, so nothing in them may steer one."""

from __future__ import annotations

import click


def printable(text: str) -> str:
    """Return ``text`` on one line, control characters written as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def complain(message: str) -> None:
    """Say one line on standard error."""
    click.echo(f"dblock: {printable(message)}", err=True)
