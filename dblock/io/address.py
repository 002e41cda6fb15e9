"""The address in a database URL, for people, without its password."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

# The keys in a URL's query that say where the database is. Any other key may hold a secret.
WHERE = ("host", "port", "dbname", "service", "unix_socket")


def address(url: str | URL, schema: str | None = None, prefix: str = "dblock_") -> str:
    """Return a URL without its secrets, and the schema and prefix of the tables.

    A text must be a URL that :func:`~dblock.io.target.locate` has accepted.
    """
    within = [f"schema {schema}"] if schema is not None else []
    within += [f"prefix {prefix}"] if prefix != "dblock_" else []
    return ", ".join([_shown(url), *within])


def _shown(url: str | URL) -> str:
    if isinstance(url, str):
        if url.startswith("sqlite:"):  # a file's URL is read without importing SQLAlchemy
            return url.partition("?")[0]
        from sqlalchemy.engine import make_url

        url = make_url(url)
    shown = url.set(query={key: url.query[key] for key in WHERE if key in url.query})
    return shown._replace(password=None).render_as_string()
