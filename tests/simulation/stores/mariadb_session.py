"""One session of a simulated client on real MariaDB, whose statements may wait in the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from select import select
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet
from pymysql.connections import Connection
from pymysql.constants import COMMAND, SERVER_STATUS
from pymysql.protocol import EOFPacketWrapper, MysqlPacket

from dblock.dialects.adapter import Answer
from tests.simulation.stores.mariadb_statements import Statement, virtual

if TYPE_CHECKING:
    from tests.simulation.store import Blocked
    from tests.simulation.stores.mariadb import MariaDBStore

#: Seconds of the real clock after which who has no answer yet looks whether the statement waits.
SOON = 0.0005

_RESET_CONNECTION = 0x1F
_DEADLOCK = 1213
_FRESH = "SET NAMES utf8mb4, autocommit = 0"
#: Of a fresh session: no limit for a statement; for a row MariaDB's usual one.
_LONGEST, _FOR_ROWS = 0.0, 50.0


class For(Enum):
    """What a statement waits for."""

    ROW = auto()
    LOCK = auto()


@dataclass(slots=True, eq=False)
class Wait:
    """A statement that waits in the server: what for, and how that ends if nobody lets it go on."""

    for_: For
    blocked: Blocked
    #: By the database's clock.
    since: float
    #: It is a user lock's own time that is up first.
    refused: bool = False


class Driver(Connection):  # type: ignore[misc]
    """A connection of PyMySQL's. What is sent over it in a task can be left waiting."""

    def __init__(self, store: MariaDBStore, **options: Any) -> None:
        self._store = store
        self._task: greenlet | None = None
        self.settings: object = None
        #: What it was asked for, what it does just now, since when, and what it waits for.
        self.asked: object = None
        self.statement = virtual("")
        self.params: Any = None
        self.wait: Wait | None = None
        self.began = 0.0
        #: Seconds that a statement may take, and wait for a row, where it does not say so itself.
        self.longest, self.for_rows = _LONGEST, _FOR_ROWS
        super().__init__(**options)

    # --- statements --------------------------------------------------------------------------

    def begin(self, statement: Statement, params: Any, send: Callable[[], Answer]) -> Answer | Wait:
        """Have a statement carried out; return what it waits for, if it does."""
        self.statement, self.params = statement, params
        self._task = greenlet(send)
        return self.go_on()

    def go_on(self, *, answered: bool = False) -> Answer | Wait:
        """Go on with a statement that waited, which the server is sure to answer, or not."""
        task = self._task
        assert task is not None, "nothing waits"
        task.parent = getcurrent()
        self.wait = None
        try:
            outcome: Answer | Wait = task.switch(answered) if task else task.switch()
        except Connection.Error as error:
            if error.args[0] == _DEADLOCK:
                self.server_status &= ~SERVER_STATUS.SERVER_STATUS_IN_TRANS
            raise
        finally:
            if not task:
                self._task = None
        if isinstance(outcome, Wait):
            self.wait = outcome
        return outcome

    def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        """Send a statement, and with it the time."""
        if isinstance(sql, str):
            sql = sql.encode(self.encoding, "surrogateescape")
        self._execute_command(COMMAND.COM_QUERY, self._store.moment() + sql)
        self._read_query_result()
        task = self._task
        if task is getcurrent():
            while not self._answered():
                wait = self._store.waits(self)
                if wait is not None and task.parent.switch(wait):
                    break
        found: int = self._read_query_result(unbuffered)
        self._affected_rows = found
        return found

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Any:
        packet = super()._read_packet(packet_type)
        if packet.is_eof_packet():
            status: int = EOFPacketWrapper(packet).server_status
            packet.rewind()
            self.server_status = status
        return packet

    def _answered(self) -> bool:
        self._sock.setblocking(False)
        read = self._rfile.peek(1)  # together with the answer to what was sent before it
        self._sock.settimeout(self._read_timeout)
        return bool(read or select([self._sock], [], [], SOON)[0])

    # --- the session -------------------------------------------------------------------------

    @property
    def description(self) -> Any:
        """What the columns of the last answer are called."""
        return self._result.description

    @property
    def in_transaction(self) -> bool:
        """Whether it is in one, as the server said last."""
        return bool(self.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    @property
    def id(self) -> int:
        number: int = self.thread_id()
        return number

    def renew(self) -> None:
        """Be as a fresh connection: nothing is open, locked or set."""
        self._execute_command(_RESET_CONNECTION, b"")
        self._read_ok_packet()
        self._execute_command(COMMAND.COM_QUERY, _FRESH)
        self._read_ok_packet()
        self.longest, self.for_rows = _LONGEST, _FOR_ROWS

    def abandon(self) -> None:
        """Close it without a word."""
        task, self._task, self.wait = self._task, None, None
        self._force_close()
        if task:
            task.parent = getcurrent()
            task.throw(GreenletExit)
