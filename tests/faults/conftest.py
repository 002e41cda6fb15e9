"""A database of its own behind a proxy of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dblock import Locks, Timeouts
from tests.conftest import Database, NewDatabase
from tests.faults.proxy import Proxy

# Bytes that occur in one statement only.
GRANT = b"acquired_at = "
RENEW = b"SET expires_at"
RELEASE = b"SET token = NULL"


@dataclass
class Net:
    """dblock on both ways to one database: through the proxy, and around it."""

    db: Database
    proxy: Proxy
    locks: Locks
    direct: Locks


@pytest.fixture(params=["postgresql", "mariadb"])
def net(request: pytest.FixtureRequest, new_database: NewDatabase) -> Iterator[Net]:
    db = new_database(request.param, migrated=True)
    with (
        Proxy(db.url) as proxy,
        Locks(proxy.url, timeouts=Timeouts(connect=2, query=1, socket=3)) as locks,
        Locks(db.url) as direct,
    ):
        yield Net(db, proxy, locks, direct)
