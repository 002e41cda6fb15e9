"""What is looked at on SQLite: the file, and where it is."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from .finding import Check, Finding, Patient, note, ok, wrong

# Their locks are known to be lost or not to be there: https://www.sqlite.org/faq.html#q5
NETWORKED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "fuse.s3fs"}
MOUNTS = Path("/proc/self/mounts")


def server(patient: Patient) -> Iterator[Finding]:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < (3, 35):
        yield wrong("server", f"SQLite {version}", "it lacks RETURNING", "SQLite 3.35 or newer")
    else:
        yield ok("server", f"SQLite {version}, for the processes of this host")


def file(patient: Patient, mounts: Path = MOUNTS) -> Iterator[Finding]:
    """Look at the file and where it is, ``mounts`` being the list of what is mounted where."""
    path = _file(patient)
    kind = _filesystem(path, mounts)
    if kind in NETWORKED:
        yield wrong(
            "file",
            f"{path} is on a network file system ({kind})",
            "its locks are not reliable there: two may write, and hold a name, or break the file",
            "a file on a local disk, or a database server",
        )
    elif not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        yield wrong(
            "file",
            f"{path} or its directory is not writable for this user",
            "nothing can be locked",
            "make both writable",
        )
    else:
        yield ok("file", str(path))


def journal(patient: Patient) -> Iterator[Finding]:
    ((mode,),) = patient.ask("PRAGMA journal_mode")
    if mode == "wal":
        yield ok("journal", mode)
    else:
        yield note(
            "journal",
            str(mode),
            "whoever reads holds up who writes, renewals too",
            "PRAGMA journal_mode = WAL;",
        )


def integrity(patient: Patient) -> Iterator[Finding]:
    said = [str(row[0]) for row in patient.ask("PRAGMA quick_check(1)")]
    if said == ["ok"]:
        yield ok("integrity", "ok")
    else:
        yield wrong("integrity", said[0], "the file is damaged", "restore it, or make it anew")


def index(patient: Patient) -> Iterator[Finding]:
    for name in ("lock", "applied", "once", "run"):
        columns = patient.ask(f"PRAGMA table_info({patient.dialect.prefix + name})")
        if columns and not any(primary for *_, primary in columns):
            yield wrong(
                f"index of {name}",
                "it has no primary key",
                "one name can have two rows, and two holders",
                "restore it: dblock upgrade --sql shows its definition",
            )
        elif columns:
            yield ok(f"index of {name}", "there")


def _file(patient: Patient) -> Path:
    return Path(
        next(path for _, name, path in patient.ask("PRAGMA database_list") if name == "main")
    )


def _filesystem(path: Path, listed: Path) -> str:
    """Return the kind of file system a file is on; nothing where that is not told."""
    try:
        mounts = [line.split() for line in listed.read_text().splitlines()]
    except OSError:
        return ""
    inside = [
        (len(point), kind) for _, point, kind, *_ in mounts if path.resolve().is_relative_to(point)
    ]
    return max(inside, default=(0, ""))[1]


CHECKS: tuple[Check, ...] = (server, file, journal, integrity, index)
