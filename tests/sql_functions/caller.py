"""A program in another language: a plain connection that calls the SQL functions."""

from __future__ import annotations

import secrets
from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg
from sqlalchemy import make_url


class Acquired(NamedTuple):
    """The row of dblock_acquire."""

    fence: int | None
    expires_in: float | None
    holder: str | None
    frees_in: float | None


class Shown(NamedTuple):
    """The row of dblock_show."""

    holder: str | None
    fence: int
    since: Any
    expires_in: float | None
    waiters: int


def token() -> str:
    return secrets.token_hex(16)


def conninfo(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


class Caller:
    """One session, in autocommit; ``begin`` and others can be sent as statements."""

    def __init__(self, url: str, functions: str = "dblock_{}") -> None:
        self.connection = psycopg.connect(conninfo(url), autocommit=True, prepare_threshold=None)
        self._functions = functions

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def acquire(
        self, name: str, token: str, ttl: float = 30.0, owner: str = "a caller"
    ) -> Acquired:
        sql = f"SELECT * FROM {self._functions.format('acquire')}(%s, %s, %s, %s)"
        return Acquired(*self.run(sql, name, token, owner, ttl)[0])

    def renew(self, name: str, token: str, ttl: float = 30.0) -> tuple[int | None, float | None]:
        ((fence, expires_in),) = self.run(
            f"SELECT * FROM {self._functions.format('renew')}(%s, %s, %s)", name, token, ttl
        )
        return fence, expires_in

    def release(self, name: str, token: str) -> bool:
        ((released,),) = self.run(
            f"SELECT {self._functions.format('release')}(%s, %s)", name, token
        )
        return bool(released)

    def show(self, name: str) -> Shown:
        return Shown(*self.run(f"SELECT * FROM {self._functions.format('show')}(%s)", name)[0])

    def gate(self, name: str, fence: int | None) -> int:
        ((newest,),) = self.run(f"SELECT {self._functions.format('gate')}(%s, %s)", name, fence)
        return int(newest)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.connection.close()
