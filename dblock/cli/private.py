"""Files that no other user may change: the default database, and a file with a URL."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from ..errors import Misconfigured

OTHERS_WRITE, OTHERS_USE = 0o022, 0o077
# The group may read the file, for example the group of a service that does not own it.
NOT_FOR_OTHERS = 0o027


def make(file: Path) -> None:
    """Create a file and its directory, for this user alone.

    Raises Misconfigured if either belongs to another user. A user that may write to the directory
    could replace the file at any time. So this checks the directory first, and follows no symbolic
    link.
    """
    if not hasattr(os, "geteuid"):
        raise Misconfigured(
            "on this system dblock cannot see whether a file is yours alone, so it has no default "
            "database here: name one with --url or DBLOCK_URL"
        )
    for path in reversed(file.parents):
        if not path.exists():
            with contextlib.suppress(FileExistsError):  # another process made it
                path.mkdir(mode=0o700)
    directory = _open(file.parent)
    try:
        found = os.fstat(directory)
        if found.st_uid != os.geteuid():
            raise _refused(file.parent, f"belongs to the user {found.st_uid}", "yours")
        if found.st_mode & OTHERS_WRITE:
            mend = f"If nothing strange is in it, run: chmod 700 {file.parent}"
            raise _refused(
                file.parent, "can be written to by others", "writable for you alone", mend
            )
        _make(file, directory)
    finally:
        os.close(directory)


def _open(directory: Path) -> int:
    try:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise _refused(directory, "is a symbolic link or not a directory", "a directory") from None


def _make(file: Path, directory: int) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileExistsError):
        os.close(os.open(file.name, flags, 0o600, dir_fd=directory))
    # An existing file is never opened: closing it would end SQLite's locks on it.
    found = os.stat(file.name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        raise _refused(file, "is a symbolic link or not a file", "a plain file")
    if found.st_uid != os.geteuid():
        raise _refused(file, f"belongs to the user {found.st_uid}", "yours")
    if found.st_mode & OTHERS_USE:
        os.chmod(file.name, 0o600, dir_fd=directory)


def _refused(path: Path, wrong: str, only: str, mend: str | None = None) -> Misconfigured:
    return Misconfigured(
        f"dblock does not use the default database: {path} {wrong}, but it must be {only}. "
        f"{mend or 'Move it away'}, or name another database with DBLOCK_URL or XDG_STATE_HOME"
    )


def read_urls(path: str) -> tuple[str, ...]:
    """Return the database URLs in a file, one a line.

    Raises ValueError if other users may read or change the file. No message shows its content.
    """
    if not hasattr(os, "geteuid"):
        raise ValueError(
            "on this system dblock cannot see which users may read a file: use DBLOCK_URL"
        )
    try:
        with open(path, encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            lines = file.read().strip().splitlines()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file") from None
    if found.st_uid not in (os.geteuid(), 0):
        raise ValueError(
            f"{path} belongs to the user {found.st_uid}: it must belong to you or to root"
        )
    if found.st_mode & NOT_FOR_OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise ValueError(
            f"others can read or change {path} (its mode is {mode:04o}), and a password may be in "
            f"it: run chmod 600 {path}, or chmod 640 for a group that may read it"
        )
    if not lines or not all(line.strip() for line in lines):
        raise ValueError(
            f"{path} must have one line, the database's URL, or a line for each database of a "
            "quorum"
        )
    return tuple(line.strip() for line in lines)
