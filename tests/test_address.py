"""Whatever names a database for people names no password."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import make_url

from dblock import Locks
from dblock.aio import AsyncLocks
from dblock.io.target import address

SECRETS = "password=swordfish&sslpassword=swordfish&passwd=swordfish&sslkey=/swordfish"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql+psycopg://app:sword%40fish@db:5433/app",
            "postgresql+psycopg://app@db:5433/app",
        ),
        (f"postgresql://app@/app?host=/run/pg&{SECRETS}", "postgresql://app@/app?host=%2Frun%2Fpg"),
        (f"mysql+pymysql://app:swordfish@db/app?{SECRETS}", "mysql+pymysql://app@db/app"),
        ("sqlite:////var/lib/locks.db?timeout=5", "sqlite:////var/lib/locks.db"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert address(url) == address(make_url(url)) == shown
    assert address(url, "tenant", "app_") == f"{shown}, schema tenant, prefix app_"


def test_locks_show_no_password() -> None:
    locks = Locks(f"postgresql://app:swordfish@db/app?{SECRETS}")
    shared = AsyncLocks(f"mysql+asyncmy://app:swordfish@db/app?{SECRETS}")
    assert repr(locks) == "<Locks in postgresql+psycopg://app@db/app>"
    assert repr(shared) == "<AsyncLocks in mysql+asyncmy://app@db/app>"
