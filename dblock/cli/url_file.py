"""URLs in a file. It is read again for each connection, because a password in it may change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..io.target import address
from ..protocol.faults import Fault, StatementError
from .output import complain
from .private import read_urls

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from ..locks import Locks


class UrlFile:
    """The file at ``path``, with a URL a line. ``urls`` is what was in it at first."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.urls = read_urls(path)
        self._complaint = ""

    def follow(self, locks: Locks, number: int = 0) -> None:
        """Let each new connection of ``locks`` use the file's user and password of that moment.

        Its URL is in the line with this number, from 0.
        """
        if locks._database.dialect.traits.one_writer:  # a database in a file has neither
            return
        from sqlalchemy.engine import make_url

        from ..io.own_engine import connect_with

        first = make_url(self.urls[number])
        adapter, backend = locks._database.dialect.adapter, locks.engine.url.get_backend_name()
        driver = first.drivername.partition("+")[2] or adapter.drivers[0]

        def now() -> URL:
            url = self._read(number)
            if _without_account(url) != _without_account(first):
                raise ValueError(
                    f"{self.path} names another database than at the start, {address(url)}: "
                    "restart dblock to use that one"
                )
            return url.set(drivername=f"{backend}+{driver}")

        def told() -> URL:
            try:
                url = now()
            except ValueError as error:
                self._complain(str(error))
                raise StatementError(Fault.UNREACHABLE, str(error)) from error
            self._complaint = ""
            return url

        connect_with(locks.engine, adapter, driver, told)

    def _read(self, number: int) -> URL:
        from sqlalchemy.engine import make_url

        texts = read_urls(self.path)
        if len(texts) != len(self.urls):
            raise ValueError(
                f"{self.path} has {len(texts)} URLs, and had {len(self.urls)} at the start"
            )
        try:
            return make_url(texts[number])
        except Exception:  # it may show the text
            raise ValueError(f"{self.path} has no database URL in it any more") from None

    def _complain(self, said: str) -> None:
        """Print it once, however often a connection is tried."""
        if said != self._complaint:
            self._complaint = said
            complain(f"no new connection to the database: {said}")


def _without_account(url: URL) -> str:
    return address(url._replace(username=None))
