"""One session of a simulated client on a real MariaDB or MySQL, whose statements may wait in the
server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from select import select
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet
from pymysql.connections import Connection
from pymysql.constants import COMMAND, SERVER_STATUS
from pymysql.protocol import EOFPacketWrapper, MysqlPacket

from dblock.dialects.adapter import Answer
from tests.simulation.stores.innodb_statements import Statement, impatient

if TYPE_CHECKING:
    from tests.simulation.store import Blocked
    from tests.simulation.stores.innodb import InnoDBStore

#: Seconds of the real clock after which who has no answer yet looks whether the statement waits.
SOON = 0.0005

_COUNTS = b"ROW_COUNT()"
_RESET_CONNECTION = 0x1F
_INTERRUPTED, _DEADLOCK = 1317, 1213
_FRESH = "SET NAMES utf8mb4, autocommit = 0"
#: Of a fresh session: no limit for a statement; for a row the servers' usual one.
_LONGEST, _FOR_ROWS = 0.0, 50.0
_FOR_ROWS_READ = b"@@innodb_lock_wait_timeout"


class For(Enum):
    """What a statement waits for: the last is the moment when the next one of a packet begins."""

    ROW = auto()
    LOCK = auto()
    TURN = auto()


@dataclass(slots=True, eq=False)
class Wait:
    """A statement that waits in the server: what for, and how that ends if nobody lets it go on."""

    for_: For
    blocked: Blocked
    #: By the database's clock.
    since: float
    #: It is a user lock's own time that is up first.
    refused: bool = False
    #: It has come.
    come: bool = False


class Driver(Connection):  # type: ignore[misc]
    """A connection of PyMySQL's. What is sent over it in a task can be left waiting."""

    _result: Any

    def __init__(self, store: InnoDBStore, **options: Any) -> None:
        self._store = store
        self._task: greenlet | None = None
        self.settings: object = None
        #: What it was asked for, what it does just now, since when, and what it waits for.
        self.asked: object = None
        self.statement = Statement("")
        self.params: Any = None
        #: The statements that are asked for, one behind the other, and the text of those to come.
        self._statements: Sequence[Statement] = ()
        self._rest: list[bytes] = []
        #: Whether what is sent counts the rows of the statement before it.
        self._counts = False
        self.wait: Wait | None = None
        self.began = 0.0
        #: Seconds that a statement may take, and wait for a row, where it does not say so itself.
        self.longest, self.for_rows = _LONGEST, _FOR_ROWS
        super().__init__(**options)

    # --- statements --------------------------------------------------------------------------

    def begin(
        self, statements: Sequence[Statement], params: Any, send: Callable[[], Answer]
    ) -> Answer | Wait:
        """Have what was asked for carried out; return what it waits for, if it does."""
        self._statements, self.params = statements, params
        self._task = greenlet(send)
        return self.go_on()

    def go_on(self, ended: Wait | None = None) -> Answer | Wait:
        """Go on with a statement that waited, and whose wait has been ended, or not."""
        task = self._task
        assert task is not None, "nothing waits"
        task.parent = getcurrent()
        self.wait = None
        try:
            outcome: Answer | Wait = task.switch(ended) if task else task.switch()
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
        """Send a statement, or the first one of a packet."""
        if isinstance(sql, str):
            sql = sql.encode(self.encoding, "surrogateescape")
        first, *self._rest = self._store.parts(sql)
        self._result = None
        return self._carry_out(first, unbuffered)

    def next_result(self, unbuffered: bool = False) -> int:
        """Send the next one, which the server would begin by itself; others may come between."""
        if not self._rest:
            found: int = super().next_result(unbuffered)
            return found
        task = self._task
        # Nobody comes between a KILL and its answer: whether its victim is gone by then is chance.
        killed = any(one.kills for one in self._statements[: -len(self._rest)])
        if task is not None and task is getcurrent() and not killed:
            task.parent.switch(self._store.turn(self))
        self._result = None
        return self._carry_out(self._rest.pop(0), unbuffered)

    def _carry_out(self, sql: bytes, unbuffered: bool) -> int:
        rest, self._rest = self._rest, []  # an error ends all
        number = len(self._statements) - len(rest) - 1
        self.statement = self._statements[number] if number >= 0 else Statement("")
        self._counts = number > 0 and _COUNTS in sql
        found = self._answer_to(sql, unbuffered)
        self._affected_rows, self._rest = found, rest
        if rest:
            self._result.has_next = True
        return found

    def _answer_to(self, sql: bytes, unbuffered: bool) -> int:
        """Return how many rows a statement found or changed."""
        ended = self._send(sql)
        try:
            found: int = self._read_query_result(unbuffered)
        except Connection.Error as error:
            if ended is None or error.args[0] != _INTERRUPTED:
                raise
            if not ended.refused:
                assert ended.blocked.error is not None
                raise ended.blocked.error from None
        else:
            if ended is None or not ended.refused:
                return found
        return self._answer_to(impatient(sql), unbuffered)

    def _send(self, sql: bytes) -> Wait | None:
        """Send a statement, and with it the time; return the wait that somebody has ended."""
        task = self._task
        asked = task is not None and task is getcurrent()
        if asked:  # the limit that the session has for the simulation
            sql = sql.replace(_FOR_ROWS_READ, f"{self.for_rows:.0f}".encode())
        self.began = self._store.clock()
        if self._counts:  # the rows of the one before it, which knows the time
            self._execute_command(COMMAND.COM_QUERY, sql)
            return None
        self._execute_command(COMMAND.COM_QUERY, self._store.moment() + sql)
        self._read_query_result()
        self._result = None  # else the next one would be read with it
        if task is None or not asked:
            return None
        while not self.answered(SOON):
            wait = self._store.waits(self)
            ended: Wait | None = None if wait is None else task.parent.switch(wait)
            if ended is not None:
                return ended
        return None

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Any:
        packet = super()._read_packet(packet_type)
        if packet.is_eof_packet():
            status: int = EOFPacketWrapper(packet).server_status
            packet.rewind()
            self.server_status = status
        return packet

    def answered(self, seconds: float = 0.0) -> bool:
        """Whether there is an answer, now or so many seconds of the real clock later."""
        self._sock.setblocking(False)
        read = self._rfile.peek(1)  # together with the answer to what was sent before it
        self._sock.settimeout(self._read_timeout)
        return bool(read or select([self._sock], [], [], seconds)[0])

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
        task, self._task, self.wait, self._rest = self._task, None, None, []
        self._force_close()
        if task:
            task.parent = getcurrent()
            task.throw(GreenletExit)
