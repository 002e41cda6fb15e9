"""Which of the settings' databases the locks are in."""

from __future__ import annotations

from .conf import conf


def alias() -> str:
    """Return the alias of the database that the locks are in."""
    named = conf().database
    if named is not None:
        return named
    from django.db import router

    from .models import Lock

    return router.db_for_write(Lock)
