"""What happens to the members of a quorum: to a minority of them at a time."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from dblock import Quorum, Unavailable
from tests.faults.proxy import Proxy
from tests.servers import Server
from tests.support import eventually

from .crew import Crew, Place
from .file import File
from .havoc import Havoc
from .history import RESTORED
from .members import Member, Members
from .nemesis import EVERYWHERE, Fault
from .plan import Plan
from .recorded import TIMEOUTS

# In TTLs: how long a member is away; how old a copy is, at least; and from the time when all vote
# again to the next fault. After that every hold has ended that a majority without the member has.
AWAY, OLD, WHOLE = (0.3, 1.5), (1.0, 3.0), (1.0, 1.5)


class WithoutAMinority(Havoc):
    """Of 2f + 1 members f are away, or forget. Workers die and stop, too.

    There is a thread for each of the f. It goes on to another member when all vote again.
    """

    between: ClassVar[dict[str, float]] = {EVERYWHERE: 0.2, "workers": 2.0}

    def __init__(self, crew: Crew, server: Server, database: str, plan: Plan) -> None:
        assert isinstance(server, Members)
        self._members = server.members
        self._copies: dict[Member, Path] = {}
        #: The members that a thread has to itself.
        self._taken: set[Member] = set()
        self._choosing = threading.Lock()
        direct = [member.direct for member in self._members]
        self._quorum = Quorum(direct, timeouts=TIMEOUTS)
        # All members have to be there for the first use.
        with self._quorum.lease("first use", ttl=plan.ttl):
            pass
        super().__init__(crew, server, database, plan)

    def kinds(self) -> dict[str, dict[str, Fault]]:
        members: dict[str, Fault] = {
            "member frozen": self._freeze,
            RESTORED: self._restore,
        }
        if any(member.proxy is not None for member in self._members):
            members |= {
                "member killed": self._kill,
                "member restarted": self._restart,
                "member cut off": partial(self._cut_off, silently=False),
                "member silent": partial(self._cut_off, silently=True),
            }
        minority = (len(self._members) - 1) // 2
        threads = [EVERYWHERE, *(f"{EVERYWHERE} {number}" for number in range(2, minority + 1))]
        return {"workers": super().kinds()["workers"], **dict.fromkeys(threads, members)}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._quorum.close()

    @contextlib.contextmanager
    def _one(self, chance: random.Random, members: list[Member]) -> Iterator[Member]:
        """Draw a member for a fault; after that wait until the quorum is whole."""
        with self._choosing:
            member = chance.choice([each for each in members if each not in self._taken])
            self._taken.add(member)
        yield member
        eventually(lambda: self._enough.is_set() or self._all_vote())
        self._pause(chance, *WHOLE)
        member.tidy()
        self._taken.remove(member)

    def _all_vote(self) -> bool:
        with contextlib.suppress(Unavailable):
            return all(status.state == "votes" for status in self._quorum.check())
        return False

    @property
    def _servers(self) -> list[Member]:
        return [member for member in self._members if member.proxy is not None]

    # --- away ---------------------------------------------------------------------------------

    def _freeze(self, place: Place, chance: random.Random) -> None:
        with self._one(chance, self._members) as member:
            member.server.pause()
            self._pause(chance, *AWAY)
            member.server.resume()

    def _kill(self, place: Place, chance: random.Random) -> None:
        with self._one(chance, self._servers) as member:
            member.server.kill()
            self._pause(chance, *AWAY)
            member.server.start()

    def _restart(self, place: Place, chance: random.Random) -> None:
        with self._one(chance, self._servers) as member:
            self._copies[member] = copied(member)

    def _cut_off(self, place: Place, chance: random.Random, *, silently: bool) -> None:
        with self._one(chance, self._servers) as member:
            assert member.proxy is not None
            if silently:
                member.proxy.deaf = True
                self._pause(chance, *AWAY)
            # What was swallowed never comes, so the connections it was lost on must go.
            with refused(member.proxy):
                self._pause(chance, *((0.0, 0.0) if silently else AWAY))

    # --- forgetting ---------------------------------------------------------------------------

    def _restore(self, place: Place, chance: random.Random) -> None:
        """Let a member forget what it has granted since a copy was made, as docs/quorum.md says."""
        with self._one(chance, self._members) as member:
            if member not in self._copies:
                self._copies[member] = copied(member)
                self._pause(chance, *OLD)
            server, copy = member.server, self._copies[member]
            if member.proxy is None:
                with self._crew.emptied():
                    server.restore(copy)
                    self._rejoin(member)
                return
            with refused(member.proxy):
                server.kill()
                server.restore(copy)
                server.start()
                if server.kind != "postgresql":
                    self._rejoin(member)

    def _rejoin(self, member: Member) -> None:
        """Call it again where it had a connection that the server's end has broken."""
        number = self._members.index(member)

        def rejoined() -> bool:
            with contextlib.suppress(Unavailable):
                self._quorum.rejoin(number)
                return True
            return False

        eventually(rejoined)


def copied(member: Member) -> Path:
    """Copy a member's data; a server stops for that."""
    server = member.server
    if isinstance(server, File):
        return server.copy()
    server.stop()
    copy = server.copy()
    server.start()
    return copy


@contextlib.contextmanager
def refused(proxy: Proxy) -> Iterator[None]:
    """Let nobody through a proxy."""
    proxy.refuse()
    yield
    proxy.restore()
