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
    PassOn,
    ReadWitness,
    RecordTtl,
    ReleaseAndUnlock,
    Take,
    UnlockAll,
    WaitInServer,
    WriteWitness,
)
from ..adapter import Adapter
from ..elections import ElectionStatements
from ..retiring import RetiringStatements
from ..runs import RunStatements
from ..waiters import WaiterStatements
from .adapter import TURN, SQLite3
from .fragments import NOW, REMAINING, SHIFTED, modifier
from .lease import LeaseStatements, ReaderStatements, SlotStatements
from .row import RowStatements


class SQLite(
    LeaseStatements,
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
    backends: ClassVar[tuple[str, ...]] = ("sqlite",)
    driver: ClassVar[type[Adapter]] = SQLite3

    unsupported: ClassVar[Mapping[type[Command[Any]], str]] = {
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
    found: ClassVar[dict[str, str]] = {
        "schema": "'main'",
        "container": "(SELECT file FROM pragma_database_list WHERE name = 'main')",
    }
    ago = "strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds')"

    def shift(self, seconds: float) -> object:
        return modifier(seconds)

    def privileges(self, role: str) -> tuple[str, ...]:
        return ("write access to the file and to its directory",)
