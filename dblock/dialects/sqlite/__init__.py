"""SQLite 3.35 or newer, through the standard library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...protocol.commands import (
    AnnounceTtl,
    CallObservers,
    CallReaders,
    Command,
    Distrust,
    EndSession,
    PassOn,
    ReadWitness,
    RecordTtl,
    ReleaseAndUnlock,
    SeeHidden,
    Take,
    UnlockAll,
    WaitInServer,
    WriteWitness,
)
from ...protocol.dialect import Traits
from ...protocol.rate import Arrival, TakePlace
from ..adapter import Adapter
from ..elections import ElectionStatements
from ..retiring import RetiringStatements
from ..runs import RunStatements
from ..statement import statement
from ..waiters import WaiterStatements
from .adapter import TURN, SQLite3
from .fragments import NOW, REMAINING, SHIFTED, modifier
from .lease import MemberStatements, ReaderStatements, SlotStatements
from .row import RowStatements


class SQLite(
    MemberStatements,
    SlotStatements,
    ReaderStatements,
    RowStatements,
    WaiterStatements,
    RunStatements,
    RetiringStatements,
    ElectionStatements,
):
    """Times are UTC text to the millisecond, as SQLAlchemy stores them.

    WAL with ``synchronous=NORMAL`` may lose the last commits in a power cut, not in a crash of a
    process. All holders live on the file's machine, so the cut ended them too.
    """

    name = "sqlite"
    traits = Traits(
        refusal_holds=True,  # a write transaction keeps all other writers out
        looks_itself=True,
        one_writer=True,
        sees_row_locks=True,
    )
    backends: ClassVar[tuple[str, ...]] = ("sqlite",)
    driver: ClassVar[type[Adapter]] = SQLite3

    unsupported: ClassVar[Mapping[type[Command[Any]], str]] = {
        SeeHidden: "names each table with its schema, so no temporary table hides one",
        EndSession: "has no sessions",
        CallReaders: "calls nobody",
        CallObservers: "notifies nobody: observers of a name poll",
        Take: "takes a name when it is joined for",
        PassOn: "passes no name on: a release frees it",
        WaitInServer: "has no user locks",
        ReleaseAndUnlock: "has no user locks",
        UnlockAll: "has no user locks",
        ReadWitness: "has no witness",
        WriteWitness: "has no witness",
        Distrust: "has no witness",
        AnnounceTtl: "has no witness",
        RecordTtl: "has no witness",
    }

    dynamic_types = True
    name_parameter = ":name"
    patience = TURN
    remaining = REMAINING
    lasting = f"{REMAINING} > 0"
    later = SHIFTED
    clock = NOW
    instant = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
    found: ClassVar[dict[str, str]] = {
        "schema": "'main'",
        "container": "(SELECT file FROM pragma_database_list WHERE name = 'main')",
    }
    ago = "strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds')"

    def shift(self, seconds: float) -> object:
        return modifier(seconds)

    def privileges(self, role: str) -> tuple[str, ...]:
        return ("write access to the file and to its directory",)

    @statement(TakePlace, read=lambda result: Arrival.read(result.rows), lock_timeout=None)
    def take_place(self) -> str:
        fits = f"v.fence < 0 AND v.value <> :mark AND :step - v.fence <= {self.instant} + :ahead"
        new = "min(v.fence - :step, excluded.fence)"
        return f"""INSERT INTO {self.value_table} AS v (lock_name, fence, value, written_at)
            VALUES (:name, -{self.instant} - :step, :mark, {NOW})
            ON CONFLICT (lock_name) DO UPDATE
            SET fence = CASE WHEN {fits} THEN {new} ELSE v.fence END,
                value = CASE WHEN {fits} THEN excluded.value ELSE v.value END,
                written_at = CASE WHEN {fits} THEN excluded.written_at ELSE v.written_at END
            RETURNING value, -fence, {self.instant}"""
