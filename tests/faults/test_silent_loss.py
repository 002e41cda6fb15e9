"""A cable on which packets vanish without a word (promise 8), in real network namespaces.

The server and a client are at its two ends; the test itself is on the server's side of the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from sqlalchemy import make_url

from dblock import Locks, Timeouts
from dblock.schema import upgrade
from dblock.system import clock
from tests.conftest import find_or_skip, new_name
from tests.faults.far_client import Answer, FarClient
from tests.servers import FAMILY, execute, mariadb, mysql
from tests.servers.far import Far, FarMariaDB, FarMySQL, FarPostgreSQL
from tests.servers.network import Network
from tests.support import LONG, SECONDS, eventually

KINDS: dict[str, Callable[[Network], Far]] = {
    "postgresql": FarPostgreSQL,
    "mariadb": FarMariaDB,
    "mysql": FarMySQL,
}
TIMEOUTS = Timeouts(connect=2, query=0.5, socket=1)
# The client's kernel gives a connection up after a quarter of an hour, far past all patience here.
PATIENT_KERNEL = {
    "postgresql": {"keepalives": "0", "tcp_user_timeout": "0"},
    **{kind: {} for kind in FAMILY},
}
TTL = 4.0  # a tenth of it is the holder's margin
# How a holder learns of the loss. "lost", the event, is one more for leases that watch themselves.
WAYS = ("held", "check", "remaining")

SESSIONS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE client_addr IS NOT NULL",
    **dict.fromkeys(
        FAMILY, "SELECT count(*) FROM information_schema.processlist WHERE host LIKE '%%:%%'"
    ),
}
WAITING = {
    "postgresql": f"{SESSIONS['postgresql']} AND wait_event_type = 'Lock'",
    "mariadb": f"{SESSIONS['mariadb']} AND {mariadb.WAITS_FOR_A_ROW}",
    "mysql": f"{SESSIONS['mysql']} AND {mysql.WAITS_FOR_A_ROW}",
}


@dataclass
class Apart:
    """A database, this side of the cable; ``far`` is its URL on the other."""

    network: Network
    server: Far
    url: str
    far: str

    def sessions(self) -> int:
        """How many sessions the server has from the other side."""
        return self.count(SESSIONS)

    def count(self, query: dict[str, str]) -> int:
        ((count,),) = execute(self.url, query[self.server.kind])
        return int(count)


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Network, Far]]:
    with ExitStack() as stack:
        network = stack.enter_context(find_or_skip(Network))
        make = KINDS[request.param]
        yield network, stack.enter_context(find_or_skip(lambda: make(network)))


@pytest.fixture
def apart(server: tuple[Network, Far]) -> Iterator[Apart]:
    network, database = server
    name = new_name()
    database.create_database(name)
    upgrade(database.url_for(name))
    yield Apart(network, database, database.url_for(name), database.far(name))
    network.restore()


@pytest.fixture
def client(apart: Apart) -> Iterator[FarClient]:
    with FarClient(apart.network, apart.far, TIMEOUTS) as client:
        yield client


@pytest.fixture
def unaided(apart: Apart) -> Iterator[FarClient]:
    """A client that has dblock's own timeouts and no others."""
    far = make_url(apart.far).update_query_dict(PATIENT_KERNEL[apart.server.kind])
    url = far.render_as_string(hide_password=False)
    with FarClient(apart.network, url, TIMEOUTS) as client:
        yield client


@pytest.fixture
def near(apart: Apart) -> Iterator[Locks]:
    with Locks(apart.url) as locks:
        yield locks


def test_a_holder_is_told_before_another_can_acquire(
    apart: Apart, client: FarClient, near: Locks
) -> None:
    assert client.do("acquire", "report", ttl=TTL).told == "acquired"
    told = {way: client.start("told_of_loss", "report", by=way) for way in WAYS}
    assert client.do("renew", "report").told == "renewed"
    apart.network.cut()
    renewal = client.start("renew", "report")
    rival = near.lease("report", ttl=LONG)
    assert rival.acquire(timeout=SECONDS)
    acquired = clock.now()
    assert rival.fence == 2
    for way, answer in told.items():
        assert answer.result(SECONDS).told == "LockLost"
        assert answer.result().at < acquired, way
    assert client.do("check", "report").told == "LockLost"
    assert renewal.result(SECONDS).told == "LockLost"
    rival.check()


# What is under way when the cable is cut, each with a lease of its own.
UNDER_WAY = {
    "acquire": {"OutcomeUnknown"},
    "renew": {"LockLost"},
    "release": {"OutcomeUnknown", "Unavailable"},
}


@pytest.mark.parametrize("lost", ["both ways", "replies"])
def test_what_is_under_way_ends_in_time_with_the_truth(
    apart: Apart, unaided: FarClient, near: Locks, lost: str
) -> None:
    """Without one of the timeouts it would hang, as nobody else ends it."""
    warm = [unaided.start("acquire", f"warm-up {do}", ttl=TTL) for do in UNDER_WAY]
    assert {answer.result(SECONDS).told for answer in warm} == {"acquired"}
    for do in ("renew", "release"):
        assert unaided.do("acquire", do, ttl=TTL).told == "acquired"
    apart.network.cut(requests=lost == "both ways")
    answers = {
        do: unaided.start(do, do, **({"ttl": TTL} if do == "acquire" else {})) for do in UNDER_WAY
    }
    for do, told in UNDER_WAY.items():
        assert answers[do].result(SECONDS).told in told, do
    apart.network.restore()
    # Whatever the server did meanwhile or does late: nobody believes in it, and it runs out.
    later = {do: near.lease(do, ttl=LONG) for do in UNDER_WAY}
    for lease in later.values():
        assert lease.acquire(timeout=SECONDS)
    unaided.kill()
    eventually(lambda: apart.sessions() == 0)
    for do, lease in later.items():
        lease.check()
        assert near.show(do).fence == lease.fence


def test_a_waiter_for_a_lease_leaves_no_ghost(apart: Apart, client: FarClient, near: Locks) -> None:
    holder = near.lease("report", ttl=LONG)
    assert holder.acquire()
    waiter = client.start("acquire", "report", ttl=LONG, wait=None)
    eventually(lambda: apart.sessions() > 0)
    apart.network.cut()
    answer: Answer = waiter.result(SECONDS)
    assert answer.told in {"Unavailable", "OutcomeUnknown"}  # between its tries, or in one
    holder.release()
    with Locks(apart.url) as others:
        next_one = others.lease("report", ttl=LONG)
        # Its session may still have the gate, which keeps others off for a moment; not the name.
        assert next_one.acquire(timeout=SECONDS)
        assert next_one.fence == 2
        apart.network.restore()
        client.kill()
        eventually(lambda: apart.sessions() == 0)
        next_one.release()


def test_a_waiter_for_a_row_leaves_no_ghost(apart: Apart, client: FarClient, near: Locks) -> None:
    holder = near.row("order")
    assert holder.acquire()
    waiter = client.start("lock_row", "order")
    eventually(lambda: apart.count(WAITING) > 0)
    apart.network.cut()
    holder.release()  # perhaps to the waiter, which cannot learn of it
    assert waiter.result(SECONDS).told == "Unavailable"
    wait = 10 * TIMEOUTS.socket
    if apart.server.kind in FAMILY:
        # It does not look after a client whose statement waits, so this session may have the row
        # until the client's machine can say that the connection is closed.
        apart.network.restore()
        wait = SECONDS  # its machine says so when the server sends the reply again
    with Locks(apart.url) as others, others.row("order", wait=wait):
        pass
