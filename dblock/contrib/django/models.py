"""The lock table and the record of jobs' runs, for the admin and for queries. Only dblock's own
statements write them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models.expressions import Col

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

    It has no field for the holder's token, a secret. So no query of an admin, a serializer or an
    export can show it.
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


class RunKey(LockName):
    """The identity of a run: its fence and its job's name, as one text, because the admin takes no
    key of two columns. The table has no such column."""

    def get_col(self, alias: Any, output_field: Any = None) -> Col:
        return RunKeyCol(alias, self, output_field)


class RunKeyCol(Col):
    def as_sql(self, compiler: Any, connection: Any) -> Any:
        meta: Any = self.target.model._meta
        columns = [meta.get_field(name).get_col(self.alias) for name in ("fence", "lock_name")]
        (fence, params), (name, _) = map(compiler.compile, columns)
        mysql = connection.vendor == "mysql"
        return f"CONCAT({fence}, ' ', {name})" if mysql else f"({fence} || ' ' || {name})", params


class Run(models.Model):
    """A recorded run of a job."""

    key = RunKey(primary_key=True, max_length=255)
    lock_name = LockName("job", max_length=255)
    slot = LockName(max_length=255)
    fence: models.BigIntegerField[Any, int] = models.BigIntegerField()
    owner: models.CharField[Any, str | None] = models.CharField("host", max_length=255, null=True)
    started_at: models.DateTimeField[Any, datetime] = models.DateTimeField("started")
    ended_at: models.DateTimeField[Any, datetime | None] = models.DateTimeField("ended", null=True)
    exit_status: models.IntegerField[Any, int | None] = models.IntegerField(null=True)

    class Meta:
        managed = False
        db_table = conf().table("run")
        default_permissions = ("view",)
        permissions = (("reopen_run", "Can let a job run again in a slot"),)

    def __str__(self) -> str:
        return f"{self.lock_name} {self.slot}".rstrip()
