"""The checks for SQLite: the file and its file system."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from .common import TABLES
from .finding import RESTORE_KEY, Check, Finding, Patient, note, ok, wrong

# Network file systems, whose locks are unreliable or missing: https://www.sqlite.org/faq.html#q5
NETWORKED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "fuse.s3fs"}
MOUNTS = Path("/proc/self/mounts")


def server(patient: Patient) -> Iterator[Finding]:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < (3, 35):
        yield wrong("server", f"SQLite {version}", "it lacks RETURNING", "use SQLite 3.35 or newer")
    else:
        yield ok("server", f"SQLite {version}, for the processes of this host")


def file(patient: Patient, mounts: Path = MOUNTS) -> Iterator[Finding]:
    """Check the file and its file system. ``mounts`` is the system's list of mounts."""
    path = _file(patient)
    kind = _filesystem(path, mounts)
    if kind in NETWORKED:
        yield wrong(
            "file",
            f"{path} is on a network file system ({kind})",
            "file locks are not reliable there: two may hold a name, or damage the file",
            "use a file on a local disk, or a database server",
        )
    elif not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        yield wrong(
            "file",
            f"this user cannot write to {path} or to its directory",
            "no lock can be taken",
            "let this user write to both",
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
            "a reader delays every writer, and renewals too",
            "PRAGMA journal_mode = WAL;",
        )


def integrity(patient: Patient) -> Iterator[Finding]:
    said = [str(row[0]) for row in patient.ask("PRAGMA quick_check(1)")]
    if said == ["ok"]:
        yield ok("integrity", "ok")
    else:
        yield wrong(
            "integrity",
            said[0],
            "the file is damaged, and nothing in it is reliable",
            "restore the file from a backup; or delete it and run:\ndblock upgrade",
        )


def index(patient: Patient) -> Iterator[Finding]:
    for name in TABLES:
        columns = patient.ask(f"PRAGMA table_info({patient.dialect.prefix + name})")
        if columns and not any(primary for *_, primary in columns):
            yield wrong(
                f"index of {name}",
                "it has no primary key",
                "one name can have two rows, and so two holders",
                RESTORE_KEY,
            )
        elif columns:
            yield ok(f"index of {name}", "there")


def _file(patient: Patient) -> Path:
    return Path(
        next(path for _, name, path in patient.ask("PRAGMA database_list") if name == "main")
    )


def _filesystem(path: Path, listed: Path) -> str:
    """Return the kind of file system that a file is on, or "" if this system does not say."""
    try:
        mounts = [line.split() for line in listed.read_text().splitlines()]
    except OSError:
        return ""
    inside = [
        (len(point), kind) for _, point, kind, *_ in mounts if path.resolve().is_relative_to(point)
    ]
    return max(inside, default=(0, ""))[1]


CHECKS: tuple[Check, ...] = (server, file, journal, integrity, index)
