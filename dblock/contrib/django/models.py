"""The lock table for the admin and for queries. Rows are written by dblock's own statements."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models

from .conf import conf


class LockName(models.CharField):  # type: ignore[type-arg]  # not generic when it runs
    """Exact on every database, which on MariaDB takes bytes."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        value = super().get_db_prep_value(value, connection, prepared)
        as_bytes = connection.vendor == "mysql" and isinstance(value, str)
        return value.encode() if as_bytes else value


class Lock(models.Model):
    """A name of the lock table.

    Without the token of who has a lease on it: what no field is for, no query of an admin, a
    serializer or an export tells.
    """

    lock_name = LockName("name", primary_key=True, max_length=255)
    fence: models.BigIntegerField[Any, int] = models.BigIntegerField()
    owner: models.CharField[Any, str | None] = models.CharField("holder", max_length=255, null=True)
    acquired_at: models.DateTimeField[Any, datetime | None] = models.DateTimeField(null=True)
    expires_at: models.DateTimeField[Any, datetime | None] = models.DateTimeField(null=True)

    class Meta:
        managed = False
        db_table = conf().table("lock")
        default_permissions = ("view",)
        permissions = (("force_release_lock", "Can take a lock from its holder"),)

    def __str__(self) -> str:
        return str(self.lock_name)
