"""A table that stays up to date on the terminal, until a q or a ^C."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..errors import DBLockError
from ..lock_state import printable

if TYPE_CHECKING:
    from rich.table import Table

EVERY = 1.0


def watch(look: Callable[[], Table], where: str) -> None:
    """Show the table from ``look``, every second, and the name of its database, ``where``. If the
    database cannot be reached, say so."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with _keys() as keys, Live(screen=True, auto_refresh=False) as live, _until_interrupted():
        shown: Table | str = ""
        place = printable(f"locks are in {where}")
        while True:
            how = "press q to quit" if keys else "press Ctrl-C to quit"
            said = f"{time.strftime('%H:%M:%S')}  {how}"
            try:
                shown = look()
            except DBLockError as error:
                said = f"{said}  {printable(str(error))}"
            live.update(Group(shown, Text(f"\n{place}\n{said}", style="dim")), refresh=True)
            if _pressed(EVERY, keys) == "q":
                return


@contextlib.contextmanager
def _keys() -> Iterator[bool]:
    """Read single keys from a POSIX terminal during the block; yield whether that works here."""
    try:
        import termios
        import tty
    except ImportError:
        yield False
        return
    if not sys.stdin.isatty():
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(within: float, keys: bool) -> str:
    """Return the key that is pressed ``within`` that many seconds, or ""."""
    if not keys:
        time.sleep(within)
        return ""
    ready, _, _ = select.select([sys.stdin], [], [], within)
    if not ready:
        return ""
    return os.read(sys.stdin.fileno(), 1).decode(errors="replace") or "q"  # the terminal is gone


@contextlib.contextmanager
def _until_interrupted() -> Iterator[None]:
    with contextlib.suppress(KeyboardInterrupt):
        yield
