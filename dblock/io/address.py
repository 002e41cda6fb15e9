"""Which database a URL names, for people: never a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

# What in a URL's query says where the database is. All else there may be a secret.
WHERE = ("host", "port", "dbname", "service", "unix_socket")


def address(url: str | URL, schema: str | None = None, prefix: str = "dblock_") -> str:
    """Return a URL without what may be secret in it, and where the tables are in the database.

    Text is one that :func:`~dblock.io.target.locate` has taken.
    """
    within = [f"schema {schema}"] if schema is not None else []
    within += [f"prefix {prefix}"] if prefix != "dblock_" else []
    return ", ".join([_shown(url), *within])


def _shown(url: str | URL) -> str:
    if isinstance(url, str):
        if url.startswith("sqlite:"):  # a file's, which takes no SQLAlchemy to read
            return url.partition("?")[0]
        from sqlalchemy.engine import make_url

        url = make_url(url)
    shown = url.set(query={key: url.query[key] for key in WHERE if key in url.query})
    return shown._replace(password=None).render_as_string()
