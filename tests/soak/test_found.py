"""What the soak has found, as small as it gets."""

from __future__ import annotations

import socket

import pytest

from dblock import Locks
from tests.conftest import NewDatabase
from tests.faults import proxy
from tests.faults.conftest import GRANT
from tests.patience import SECONDS
from tests.servers import FAMILY

LAST = 11  # bytes of the last packet of the grant's reply: the OK of the compound statement


class HalfLink(proxy.Link):
    """Passes on the first of the two results of a grant, and cuts the connection; once."""

    done = False

    def pump_replies(self) -> None:
        results = b""
        for reply in proxy.received(self._server):
            granted = bool(self._proxy.requests) and GRANT in self._proxy.requests[-1]
            if granted and not HalfLink.done:
                results += reply
                if results[-LAST : 1 - LAST] != bytes([LAST - 4]):
                    continue  # of a packet's length, which its header of 4 bytes begins with
                HalfLink.done = True
                proxy.send(self._client, results[:-LAST])
                self._client.shutdown(socket.SHUT_WR)  # after what was sent; a reset overtakes it
                return
            self._answered = True
            proxy.send(self._client, reply)
        self.cut()


def test_a_connection_that_breaks_between_two_results(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "Link", HalfLink)
    monkeypatch.setattr(HalfLink, "done", False)
    db = new_database("mariadb", migrated=True)
    with (
        proxy.Proxy(db.url) as between,
        Locks(between.url) as locks,
    ):
        lease = locks.lease("name", ttl=60, wait=3)
        assert lease.acquire()  # settled by its token
        assert HalfLink.done
        assert lease.fence == 1
        lease.release()


@pytest.mark.parametrize(
    ("kind", "marker"), [("postgresql", b"version()"), *((kind, b"sql_mode") for kind in FAMILY)]
)
def test_a_connection_that_breaks_while_it_is_the_first(
    new_database: NewDatabase, kind: str, marker: bytes
) -> None:
    db = new_database(kind, migrated=True)
    with (
        proxy.Proxy(db.url) as between,
        Locks(between.url) as locks,
    ):
        lost = between.lose(proxy.Lose.REQUEST, marker)
        assert locks.lease("name", ttl=60, wait=3).acquire()  # nothing was sent: try again
        assert lost.done.wait(SECONDS)
