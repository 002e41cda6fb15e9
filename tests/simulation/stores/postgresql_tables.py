"""What PostgreSQL's tables contain: read whole after each commit, and written back as they were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from tests.simulation.stores.postgresql_server import EPOCH
from tests.simulation.tables import Row

#: The rows of each table, as JSON.
Contents = tuple[str, ...]

# These say which migrations were made.
_OTHERS = "('dblock_schema', 'dblock_version')"
# What a row's writer is read as, where it names the transaction that the row is of.
_OWN = "own"
# How long a pause is where no TTL was ever asked for.
_UNHEARD = 30.0
# So often what was deleted makes room again.
_VACUUM = 500


@dataclass(frozen=True, slots=True)
class Commit:
    """What was there after a commit, and whether that commit had been waited for."""

    contents: Contents
    flushed: bool


@dataclass(frozen=True, slots=True)
class Epoch:
    """When the last pause ended, or ends; and how long another one would be."""

    number: int
    closed_until: float
    longest_ttl: float


class Tables:
    """All tables of a database, read and written in a session beside the simulation.

    A row that names the transaction which wrote it is read as one that does or does not, and
    written as it was read.
    """

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._cursor = connection.cursor()
        found = self._cursor.execute(
            f"""SELECT relname, relpersistence = 'u', EXISTS (
                SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'writer')
            FROM pg_class AS c WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
                AND relname NOT IN {_OTHERS} ORDER BY relname"""
        ).fetchall()
        self.names = [name for name, _, _ in found]
        self._unlogged = {name for name, unlogged, _ in found if unlogged}
        tables = ("dblock_lock", "dblock_epoch", "dblock_witness")
        self._locks, self._epoch, self._witness = map(self.names.index, tables)
        rows = (_WRITTEN if written else "to_jsonb(t)" for _, _, written in found)
        self._read = "SELECT " + ", ".join(
            f"(SELECT coalesce(jsonb_agg({row} ORDER BY t), '[]')::text FROM {name} AS t)"
            for row, name in zip(rows, self.names, strict=True)
        )
        #: What there is now, in the beginning of a run, and in that of all runs.
        self.now = self._start = self._first = self._contents()
        #: Since the beginning.
        self.history: list[Commit] = []
        # What was decoded last, and of what.
        self._rows: tuple[str, dict[str, Row]] = ("", {})
        self._begun = ("", Epoch(0, 0.0, _UNHEARD))
        self._known = ("", (0.0, 0.0))
        self._resets = 0

    def _contents(self) -> Contents:
        contents = self._cursor.execute(self._read).fetchone()
        assert contents is not None
        return contents

    def reset(self) -> None:
        """Be as in the beginning."""
        self._write(self._first)
        self._begin()
        self._resets += 1
        if self._resets % _VACUUM == 0:
            self._cursor.execute(f"VACUUM {', '.join(self.names)}")

    def change(self, statements: Sequence[str], *, unlogged: bool) -> None:
        """Let the lock table be another kind of table."""
        for sql in statements:
            self._cursor.execute(sql)
        (self._unlogged.add if unlogged else self._unlogged.discard)("dblock_lock")
        self.note(True)

    def restore(self) -> None:
        """Be as in the beginning, except that no row is by the transaction which it names."""
        self._write(tuple(rows.replace(f'"{_OWN}"', '"0"') for rows in self._start))
        self.history = [Commit(self.now, True)]

    def replicate(self) -> None:
        """Be as in the beginning, and get the row of another server's name."""
        self._write(self._start)
        self._cursor.execute("SET session_replication_role = replica")
        self._cursor.execute("INSERT INTO dblock_lock (lock_name, fence) VALUES ('elsewhere', 1)")
        self._cursor.execute("RESET session_replication_role")
        self.now = self._contents()
        self.history = [Commit(self.now, True)]

    def put(self, stock: dict[int, int]) -> None:
        """Begin with so much of what in the users' stock."""
        self._cursor.executemany("INSERT INTO stock (id, amount) VALUES (%s, %s)", stock.items())
        self.now = self._contents()
        self._begin()

    def _begin(self) -> None:
        self._start = self.now
        self.history = [Commit(self.now, True)]

    def note(self, flushed: bool) -> None:
        """Look what a commit has changed; ``flushed`` if it was on disk before it was told."""
        before, self.now = self.now, self._contents()
        if before != self.now:
            self.history.append(Commit(self.now, flushed))

    def crash(self, lost: int) -> bool:
        """Be as after a crash that loses commits, as long as none of them was waited for.

        Return whether the lock table has lost anything.
        """
        while lost and not self.history[-1].flushed:
            self.history.pop()
            lost -= 1
        return self._forget()

    def fall_back(self, lost: int) -> bool:
        """Be as a server that has not heard of so many commits; return as :meth:`crash`.

        That a longer TTL was asked for it has heard: docs/how-it-works.md tells what that takes.
        """
        while lost and len(self.history) > 1:
            before, last = (self._decoded(one.contents).longest_ttl for one in self.history[-2:])
            if last > before:
                break
            self.history.pop()
            lost -= 1
        return self._forget()

    def _forget(self) -> bool:
        before = self.now
        kept = zip(self.history[-1].contents, self.names, strict=True)
        self._write(tuple("[]" if name in self._unlogged else rows for rows, name in kept))
        self.history[-1] = Commit(self.now, True)
        return self.now[self._locks] != before[self._locks]

    def _write(self, contents: Contents) -> None:
        for number, (before, rows) in enumerate(zip(self.now, contents, strict=True)):
            if rows == before:
                continue
            name = self.names[number]
            self._cursor.execute(f"DELETE FROM {name}")
            if rows == "[]":
                continue
            self._cursor.execute(_INSERT.format(name=name), (rows,))
        self.now = contents

    def decoded(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of each table."""
        return dict(zip(self.names, map(json.loads, self.now), strict=True))

    def rows(self) -> dict[str, Row]:
        """Return the lock table."""
        text = self.now[self._locks]
        if text != self._rows[0]:
            self._rows = text, {row["lock_name"]: _row(row) for row in json.loads(text)}
        return self._rows[1]

    def epoch(self) -> Epoch:
        """Return what is in the epoch's row."""
        text = self.now[self._epoch]
        if text != self._begun[0]:
            self._begun = text, self._decoded(self.now)
        return self._begun[1]

    def _decoded(self, contents: Contents) -> Epoch:
        (row,) = json.loads(contents[self._epoch])
        opens, longest = _seconds(row["grants_from"]) or 0.0, row["longest_ttl"] or _UNHEARD
        return Epoch(row["epoch"], opens, longest)

    def known_ttl(self) -> tuple[float, float]:
        """Return up to which TTL names are granted, and until when, by the witness."""
        text = self.now[self._witness]
        if text != self._known[0]:
            known = [
                (row["longest_ttl"], _seconds(row["valid_until"]) or 0.0)
                for row in json.loads(text)
                if row["writer"] == _OWN
            ]
            self._known = text, known[0] if known else (0.0, 0.0)
        return self._known[1]


_WRITTEN = f"""to_jsonb(t) || CASE WHEN writer = xmin::text
    THEN jsonb_build_object('writer', '{_OWN}') ELSE '{{}}' END"""
_INSERT = f"""INSERT INTO {{name}} SELECT (jsonb_populate_record(NULL::{{name}},
        CASE WHEN r ->> 'writer' = '{_OWN}'
        THEN r || jsonb_build_object('writer', pg_current_xact_id()::xid::text) ELSE r END)).*
    FROM jsonb_array_elements(%s) AS r"""


def _row(row: dict[str, Any]) -> Row:
    tickets = tuple(row["waiters"] or ())
    expires = _seconds(row["expires_at"])
    return Row(row["token"], row["fence"], expires, tickets, row["readers"])


def _seconds(moment: str | None) -> float | None:
    """Return when a moment is, by the simulation's clock."""
    return None if moment is None else (datetime.fromisoformat(moment) - EPOCH).total_seconds()
