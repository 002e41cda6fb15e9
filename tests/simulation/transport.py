"""Between a client and the database: requests and replies that take their time, or get lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from dblock.dialects.adapter import Adapter, Answer, Send, ServerSession
from dblock.dialects.postgresql.adapter import read_call
from dblock.dialects.query import Query
from dblock.protocol.faults import Fault as DatabaseFault
from dblock.protocol.state import Passed
from tests.simulation.errors import Lost, Refused, TimedOut
from tests.simulation.loop import LATENCY, Actor, Event

#: Seconds until a client finds that nothing comes from its server any more.
SILENCE = 10.0
#: Seconds until the server hears that a client which it does not hear any more has gone.
KEEPALIVE = 15.0

#: Kinds of statements that only read; and of a user's own that lock what they read.
READING = frozenset(
    {
        *("look", "look_queued", "look_at_slots", "list_held", "list_waiters", "list_blocked"),
        *("list_runs", "list_held_runs", "list_last_runs", "list_row_locks"),
        *("read_leader", "call_observers", "read_member"),
        *("read_witness", "read_clock", "probe", "select", "look_for_unused"),
    }
)
LOCKING = "locking_select"

if TYPE_CHECKING:
    from tests.simulation.client import Client, SimulatedEvent
    from tests.simulation.store import Store


class Request:
    """One statement under way."""

    def __init__(self, actor: Actor, query: Any, label: str) -> None:
        self.actor = actor
        self.query = query
        self.label = label
        self.answered = False
        self.timer: Event | None = None


class Link:
    """One connection, from the client to its session at the server.

    What can fail at a request's arrival::

        lost          it is not carried out, and the connection is reset
        mute          it is not carried out, and nothing is ever heard again
        unanswered    it is carried out, and the connection is reset
        deaf          it is carried out, and nothing is ever heard again
        late:S        the connection is reset, and the request arrives S seconds later, as the last
        kill          the client is killed; its request is carried out
        kill-before   the client is killed; its request is not carried out
        pause:S       the client is stopped for S seconds
        given-up:S    the server gives it up S seconds later, and nothing is done
        interrupt     Ctrl-C at the client; the request is carried out
        cut:S         it is carried out, and the connection is reset S seconds later
        alone:S       the server loses its standby for S seconds: what it commits is told after that
        crash:N       the server crashes before it, and loses N commits it had not waited for
        crash-after:N the server crashes when it is carried out, before it is told
        promote:N     before it another server takes over, which has not heard of N commits

    And at the arrival of what the server says without being asked: lost, deaf, cut.
    """

    def __init__(self, client: Client, store: Store, driver: Any, readable: SimulatedEvent) -> None:
        self.client = client
        self.store = store
        self.driver = driver
        #: It is for the user's own transactions; an answer may come that nobody waits for.
        self.lent = self.dirty = False
        #: The user's transaction may have locked something.
        self.locks = False
        #: The client has had an answer over it, so that it knows which session it is.
        self.known = False
        #: The client knows that it is broken; nothing comes through any more; the session is over.
        self.broken = self.deaf = self.ended = False
        #: The client has closed it, and the server hears of that in a moment.
        self.closing = False
        #: It is made ready just now, which is one event with its making.
        self.preparing = False
        #: Seconds for which the client waits for an answer; infinity as long as the server lives.
        self.bound = SILENCE
        #: What the server has said without being asked, where somebody listens to that.
        self.heard: list[str] = []
        #: What the tickets begin with that it hears of.
        self.channel: str | None = None
        #: It hears of who leads, too.
        self.observes = False
        self.readable = readable
        #: Whose statement was sent last.
        self.actor: Actor | None = None

    # --- the client's side -------------------------------------------------------------------

    def send(self, query: Query[Any]) -> Answer:
        """Have a statement carried out, and wait for what comes of it."""
        loop = self.client.loop
        actor = loop.current
        if self.preparing or actor is None or self.store.is_local(query):
            return self.store.execute(self.driver, query)
        if self.broken:
            raise Lost("the connection is closed")
        if self.dirty and not self.lent:
            loop.accuse(f"{actor.name} is sent on a connection that was interrupted")
        self.actor = actor
        request = Request(actor, query, loop.label(f"{actor.name}.{kind_of(query)}"))
        event = loop.at(LATENCY, request.label, lambda: self._arrive(request, event))
        self._be_patient(request)
        answer = loop.park()
        if isinstance(answer, BaseException):
            try:
                raise answer
            finally:
                del answer  # its traceback would keep it, and with it whoever called
        found: Answer = answer
        return found

    def _be_patient(self, request: Request) -> None:
        request.timer = self.client.loop.at(
            min(self.bound, SILENCE) / self.client.rate,
            f"{request.label}<timeout",
            lambda: self._give_up(request),
            self.client,
        )

    def _give_up(self, request: Request) -> None:
        if request.answered:
            return
        if self.bound == math.inf and not self.deaf:
            self._be_patient(request)
            return
        self.deaf = True
        self._answer(request, TimedOut("no answer in time"))

    def _answer(self, request: Request, answer: Answer | BaseException) -> None:
        """Let the caller go on."""
        if request.answered:
            return
        request.answered = True
        if request.timer is not None:
            self.client.loop.cancel(request.timer)
        if isinstance(answer, Lost):
            self.broken = True
        else:
            self.known = True
        self.store.told(request.actor, request.query, answer)
        self.client.loop.resume(request.actor, answer)

    def close(self) -> None:
        """The client closes it; the server hears of that, if anything comes through."""
        self.broken = True
        loop = self.client.loop
        if loop.over:
            self._end()
        elif not self.ended:
            label, self.closing = loop.label(f"{self.client.name}.closed"), not self.deaf
            loop.at(KEEPALIVE if self.deaf else LATENCY, label, self._end, background=True)

    def hang_up(self) -> None:
        """Let who waits for something to hear find that there is an end."""
        self.broken = True
        self.readable.set()

    @property
    def over(self) -> bool:
        """Whether the client can find that there is nothing more to hear."""
        return self.broken or (self.ended and not self.deaf)

    def called(self) -> list[str]:
        """Return what was heard since. Raises Lost where nothing more will be."""
        self.readable.clear()
        if self.over:
            raise Lost("the connection is closed")
        heard, self.heard = self.heard, []
        return heard

    # --- the network -------------------------------------------------------------------------

    def _reply(self, request: Request, answer: Answer | BaseException) -> None:
        """Let an answer be under way."""
        loop = self.client.loop
        label = f"{request.label}<"
        background = request.actor.daemon
        loop.at(
            LATENCY,
            label,
            lambda: self._answer(request, answer),
            self.client,
            background=background,
        )

    def _reset(self, request: Request) -> None:
        self._reply(request, Lost("connection reset by peer"))

    def cut(self) -> None:
        """The session has ended at the server, of itself."""
        self.ended = True
        if self.channel is not None and not self.deaf:
            loop, label = self.client.loop, f"{self.client.name}.hangup"
            loop.at(LATENCY, loop.label(label), self.readable.set, self.client)

    def break_off(self) -> None:
        """End the session at the server, and with it a statement that waits there."""
        store = self.store
        store.links.pop(self, None)
        if not self.ended:
            self.cut()
            store.end_session(self.driver, Lost("the session was ended"))

    def tell(self, what: str) -> None:
        """The server says something without being asked."""
        loop, client = self.client.loop, self.client

        def arrive() -> None:
            faults = {fault.kind for fault in event.faults}
            if "deaf" in faults:
                self.deaf = True
            if "cut" in faults:
                self.break_off()
            if not faults and not self.deaf:
                self.heard.append(what)
                self.readable.set()

        event = loop.at(LATENCY, loop.label(f"{client.name}.notified"), arrive, client)

    # --- the server's side -------------------------------------------------------------------

    def _arrive(self, request: Request, event: Event) -> None:
        """What happens when a request is there, and what goes wrong with it."""
        store, client = self.store, self.client
        then = self._answers(request)
        for fault in event.faults:
            match fault.kind:
                case "lost":
                    self._end()
                    return self._reset(request)
                case "mute":
                    self.deaf = True
                    return None
                case "unanswered":
                    then = self._breaks(request)
                case "deaf":
                    self.deaf = True
                case "late":
                    self.deaf = True
                    self._reset(request)
                    loop = client.loop
                    loop.at(fault.seconds, f"{request.label}<late", lambda: self._late(request))
                    return None
                case "kill":
                    client.kill()
                case "kill-before":
                    client.kill()
                    return None
                case "pause":
                    client.pause(fault.seconds)
                case "given-up":
                    label, refusal = f"{request.label}<given-up", Refused(DatabaseFault.CANCELED)
                    client.loop.at(fault.seconds, label, partial(then, refusal), background=True)
                    return None
                case "interrupt" if request.actor.daemon:
                    pass  # signals go to the user's own thread
                case "interrupt":
                    request.answered = self.dirty = True
                    request.actor.interruption = KeyboardInterrupt()
                    client.loop.at(
                        0.0,
                        f"{request.label}<interrupt",
                        lambda: client.loop.resume(request.actor, None),
                        client,
                    )
                case "cut":
                    label = f"{request.label}<cut"
                    client.loop.at(fault.seconds, label, self.break_off, background=True)
                case "alone":
                    store.be_alone(fault.seconds)
                case "crash":
                    store.crash(int(fault.seconds))
                    return self._reset(request)
                case "crash-after":
                    then = self._crashes(request, int(fault.seconds))
                case "promote":
                    store.promote(int(fault.seconds))
                    return self._reset(request)
                case "interrupt":
                    pass
                case _:
                    raise ValueError(f"there is no fault {fault.kind!r}")
        if store.shuts_out(client):
            self.deaf = True
            return None
        if store.down or self.ended:
            return self._reset(request)
        losable = client.loop.losable[request.label] = {
            "crash": store.losable(promoted=False),
            "promote": store.losable(promoted=True),
        }
        store.perform(self.driver, request.query, then)
        if not store.pending:  # else it may be that which waits
            losable["crash-after"] = store.losable(promoted=False)
        return None

    def _late(self, request: Request) -> None:
        """A request comes whose client has gone, which the server finds when it answers."""
        if not self.ended and not self.store.down:
            self.store.perform(self.driver, request.query, lambda answer: self._end())

    def _answers(self, request: Request) -> Callable[[Answer | BaseException], None]:
        def then(answer: Answer | BaseException) -> None:
            if not self.deaf:
                self._reply(request, answer)

        return then

    def _breaks(self, request: Request) -> Callable[[Answer | BaseException], None]:
        def then(answer: Answer | BaseException) -> None:
            self._end()
            self._reset(request)

        return then

    def _crashes(self, request: Request, lost: int) -> Callable[[Answer | BaseException], None]:
        def then(answer: Answer | BaseException) -> None:
            self.store.crash(lost)
            self._reset(request)

        return then

    def _end(self) -> None:
        """The session ends at the server."""
        self.store.links.pop(self, None)
        if not self.ended:
            self.ended = True
            self.store.end_session(self.driver)


def kind_of(query: Any) -> str:
    """Return the word for a statement: its command's, or else its own first."""
    kind: str = query.kind
    return query.sql.split(None, 1)[0].lower() if kind == "other" else kind


def connecting(store: Store, *, lent: bool = False) -> Any:
    """Make a driver's connection for the client whose code runs just now.

    ``lent`` tells that it is for the user's own transactions.
    """
    actor = store.loop.current
    assert actor is not None, "only actors connect"
    client, loop = actor.client, store.loop

    def arrive() -> None:
        kinds = {fault.kind for fault in event.faults}
        silent = store.silent or store.shuts_out(client) or "mute" in kinds or "deaf" in kinds
        outcome: Any = Lost("connection refused") if kinds or store.down else None
        if silent:
            outcome = TimedOut("no connection in time")
        loop.at(
            3.0 if silent else LATENCY,
            f"{label}<",
            lambda: loop.resume(actor, outcome),
            client,
            background=actor.daemon,
        )

    label = loop.label(f"{actor.name}.connect")
    event = loop.at(LATENCY, label, arrive)
    outcome = loop.park()
    if outcome is not None:
        try:
            raise store.lost(type(outcome))(str(outcome)) if lent else outcome
        finally:
            del outcome  # as above
    if lent:
        return client.lend(store, store.open_lent())
    driver = store.open(client)
    client.connected(store, driver)
    return driver


class Simulated(Adapter):
    """An adapter whose statements go over :class:`Link`."""

    @property
    def client(self) -> Client:
        found = self._client()
        assert found is not None
        return found

    @client.setter
    def client(self, client: Client) -> None:
        # Not to be kept by it: connections keep their adapter to the end of the process.
        self._client = ref(client)

    def send(
        self, connection: Any, query: Query[Any], within: float | None = None, waits: bool = False
    ) -> Answer:
        link = self.client.link(connection)
        if within is not None:
            link.bound = within
        return link.send(query)

    def ask(self, connection: Any, query: Query[Any]) -> Any:
        rows, _ = self.send(connection, query)
        return rows[0] if rows else ()

    def sender(self, connection: Any) -> Send:
        return partial(self.send, connection)

    def bound_reads(self, connection: Any, seconds: float) -> None:
        self.client.link(connection).bound = seconds

    def prepare_connection(self, connection: Any) -> ServerSession:
        link = self.client.link(connection)
        link.preparing = True
        try:
            return super().prepare_connection(connection)  # type: ignore[safe-super]
        finally:
            link.preparing = False

    def listen(
        self,
        connection: Any,
        session: ServerSession,
        token: Callable[[int], str],
        *,
        observes: bool = False,
    ) -> str | None:
        channel = super().listen(connection, session, token, observes=observes)
        link = self.client.link(connection)
        link.channel, link.observes = channel, observes
        return channel

    def called(self, connection: Any) -> list[tuple[str, Passed | None]]:
        return list(map(read_call, self.client.link(connection).called()))

    def is_usable(self, connection: Any) -> bool:
        return not self.client.link(connection).broken

    def broken(self, connection: Any) -> Callable[[], object]:
        return lambda: not self.is_usable(connection)

    def close(self, connection: Any) -> None:
        self.client.link(connection).close()

    def classify(self, error: BaseException) -> DatabaseFault | None:
        if isinstance(error, Lost):
            return DatabaseFault.DISCONNECTED
        if isinstance(error, Refused):
            return error.fault
        return super().classify(error)  # type: ignore[safe-super]

    def timed_out(self, error: BaseException) -> bool:
        if isinstance(error, Lost | Refused):
            return isinstance(error, TimedOut)
        return super().timed_out(error)  # type: ignore[safe-super]


def simulated(kind: type[Adapter], link: type[Simulated] = Simulated) -> type[Adapter]:
    """Return the simulated twin of an adapter."""
    return type(f"Simulated{kind.__name__}", (link, kind), {})
