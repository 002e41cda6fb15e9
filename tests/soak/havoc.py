"""Faults of all kinds: of workers, their networks, single messages, and the server."""

from __future__ import annotations

import random
import signal
from typing import ClassVar

from sqlalchemy.exc import SQLAlchemyError

from tests.faults.conftest import GRANT, RELEASE, RENEW
from tests.faults.proxy import Lose, Rule
from tests.servers import FAMILY, execute

from .crew import Place
from .nemesis import EVERYWHERE, Fault, Nemesis

# What a request has in it that is to be lost: a grant, a renewal, a release, a commit, anything.
MARKERS = (GRANT, RENEW, RELEASE, b"COMMIT", b"COMMIT", b"")
MOMENT = 0.05
# How to list the other sessions in a database, and to end one. {} is the database's name or the id.
SESSIONS = {
    "postgresql": (
        "SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()",
        "SELECT pg_terminate_backend({})",
    ),
    **dict.fromkeys(
        FAMILY,
        (
            "SELECT id FROM information_schema.processlist "
            "WHERE db = '{}' AND id <> connection_id()",
            "KILL {}",
        ),
    ),
}


class Havoc(Nemesis):
    """All of them at random times, several at once."""

    between: ClassVar[dict[str, float]] = {"messages": 0.2}

    def kinds(self) -> dict[str, dict[str, Fault]]:
        return {
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
            EVERYWHERE: {
                "server stopped": self._stop_server,
                "server crashed": self._crash_server,
                "sessions ended": self._end_sessions,
            },
        }

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
        rule.answered.wait(self._plan.ttl)
        place.proxy.cut()  # its client has gone long ago
        return True

    def _lose(self, what: Lose, place: Place, chance: random.Random) -> Rule:
        """Do it to the next request of some kind, if one comes soon."""
        rule = place.proxy.lose(what, chance.choice(MARKERS))
        rule.done.wait(self._plan.ttl)
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
