"""The faults: random, but of a seed, and each written down in the history."""

from __future__ import annotations

import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from tests.faults.conftest import GRANT, RELEASE, RENEW
from tests.faults.proxy import Lose, Rule
from tests.servers import OwnServer, execute

from .crew import Crew, Place
from .history import NEMESIS, Recorder

# What a request has in it that is to be lost: a grant, a renewal, a release, a commit, anything.
MARKERS = (GRANT, RENEW, RELEASE, b"COMMIT", b"COMMIT", b"")
MOMENT = 0.05
# TTLs from one fault of a kind to the next, in the mean; of those not named here, one.
BETWEEN = {"messages": 0.2}
# How to list the other sessions in a database, and to end one. {} is the database's name or the id.
SESSIONS = {
    "postgresql": (
        "SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()",
        "SELECT pg_terminate_backend({})",
    ),
    "mariadb": (
        "SELECT id FROM information_schema.processlist WHERE db = '{}' AND id <> connection_id()",
        "KILL {}",
    ),
}


class Nemesis:
    """Four threads, so that faults of different kinds meet.

    Each begins with a round of all its faults, then draws them. A fault is undone by the thread
    that made it, so when all have ended everything is as it was.
    """

    def __init__(
        self, crew: Crew, server: OwnServer, database: str, ttl: float, seed: str, directory: Path
    ) -> None:
        self._crew, self._server, self._database, self._ttl = crew, server, database, ttl
        self._enough = threading.Event()
        self._recorders: list[Recorder] = []
        self.errors: list[BaseException] = []
        kinds: dict[str, dict[str, Fault]] = {
            "workers": {
                "worker killed": self._kill_worker,
                "worker stopped": self._stop_worker,
            },
            "network": {
                "connections cut": self._cut,
                "network silent": self._silence,
                "connections refused": self._refuse,
            },
            "messages": {
                "request lost": self._lose_request,
                "reply lost": self._lose_reply,
                "request late": self._delay_request,
            },
            "server": {
                "server stopped": self._stop_server,
                "server crashed": self._crash_server,
                "sessions ended": self._end_sessions,
            },
        }
        #: What has to have happened once before a soak is one.
        self.kinds = [fault for faults in kinds.values() for fault in faults]
        self._threads = []
        for kind, faults in kinds.items():
            recorder = Recorder(directory, f"{NEMESIS}-{kind}")
            self._recorders.append(recorder)
            arguments = (recorder, faults, random.Random(f"{seed}/{kind}"))
            self._threads.append(threading.Thread(target=self._run, args=arguments, name=kind))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()
        for recorder in self._recorders:
            recorder.close()

    def _run(self, recorder: Recorder, faults: dict[str, Fault], chance: random.Random) -> None:
        between = BETWEEN.get(threading.current_thread().name, 1.0)
        try:
            for name in _order(list(faults), chance):
                if self._enough.wait(chance.expovariate(1 / between) * self._ttl):
                    return
                place = chance.choice(self._crew.places)
                operation = recorder.begin("fault", fault=name, place=place.number)
                happened = faults[name](place, chance)
                operation.tell("failed" if happened is False else "ok")
        except BaseException as error:  # raised again where the soak is run
            self.errors.append(error)

    def _pause(self, chance: random.Random, least: float, most: float) -> None:
        self._enough.wait(chance.uniform(least, most) * self._ttl)

    # --- workers, and their networks ----------------------------------------------------------

    def _kill_worker(self, place: Place, chance: random.Random) -> None:
        place.signal(signal.SIGKILL)

    def _stop_worker(self, place: Place, chance: random.Random) -> None:
        place.signal(signal.SIGSTOP)
        self._pause(chance, 1.1, 2.5)
        place.signal(signal.SIGCONT)

    def _cut(self, place: Place, chance: random.Random) -> None:
        place.proxy.cut()

    def _silence(self, place: Place, chance: random.Random) -> None:
        place.proxy.deaf = True
        self._pause(chance, 0.5, 2.5)
        # What was swallowed never comes, so the connections it was lost on must go.
        place.proxy.refuse()
        place.proxy.restore()

    def _refuse(self, place: Place, chance: random.Random) -> None:
        place.proxy.refuse()
        self._pause(chance, 0.5, 2.5)
        place.proxy.restore()

    def _lose_request(self, place: Place, chance: random.Random) -> bool:
        return self._lose(Lose.REQUEST, place, chance).done.is_set()

    def _lose_reply(self, place: Place, chance: random.Random) -> bool:
        return self._lose(Lose.REPLY, place, chance).done.is_set()

    def _delay_request(self, place: Place, chance: random.Random) -> bool:
        rule = self._lose(Lose.TIMELINESS, place, chance)
        if not rule.done.is_set():
            return False
        self._pause(chance, 0.1, 1.5)
        assert rule.send_late is not None
        rule.send_late()
        rule.answered.wait(self._ttl)
        place.proxy.cut()  # its client has gone long ago
        return True

    def _lose(self, what: Lose, place: Place, chance: random.Random) -> Rule:
        """Do it to the next request of some kind, if one comes soon."""
        rule = place.proxy.lose(what, chance.choice(MARKERS))
        rule.done.wait(self._ttl)
        place.forget_rules()
        rule.done.wait(MOMENT)  # it may be just at it
        return rule

    # --- the server --------------------------------------------------------------------------

    def _stop_server(self, place: Place, chance: random.Random) -> None:
        self._server.pause()
        self._pause(chance, 0.3, 2.5)
        self._server.resume()

    def _crash_server(self, place: Place, chance: random.Random) -> None:
        self._server.kill()
        self._server.start()

    def _end_sessions(self, place: Place, chance: random.Random) -> None:
        listing, ending = SESSIONS[self._server.kind]
        rows = execute(self._server.url, listing.format(self._database))
        for (session,) in sorted(rows):
            if chance.random() < 0.5:
                try:
                    execute(self._server.url, ending.format(session))
                except SQLAlchemyError:  # it has just gone by itself
                    continue


# Returns False when it did not happen: no such request came.
Fault = Callable[[Place, random.Random], bool | None]


def _order(names: list[str], chance: random.Random) -> Iterator[str]:
    chance.shuffle(names)
    return itertools.chain(names, iter(lambda: chance.choice(names), None))
