"""SQLAlchemy's sessions in the views of all frameworks: the end of their transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import event
from sqlalchemy.orm import Session

from ..errors import Unsupported


@contextmanager
def uncommitted(session: Session) -> Iterator[None]:
    """Refuse a commit by an idempotent view, before it happens.

    The key would be on record without an answer: the client could not repeat the request until the
    key expires, and the view's later changes would be in a transaction of their own.
    """

    def refuse(committing: Session) -> None:
        if committing.in_nested_transaction():  # the end of a savepoint
            return
        raise Unsupported(
            "an idempotent view does not commit: when it has answered, its work, the key and the "
            "response are committed together. Nothing has happened; take the commit out of the "
            "view, and use session.flush() where it needs what the database fills in"
        )

    event.listen(session, "before_commit", refuse)
    try:
        yield
    finally:
        event.remove(session, "before_commit", refuse)
