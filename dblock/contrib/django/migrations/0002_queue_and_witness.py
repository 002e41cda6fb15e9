"""The queue, the waiters and the witness, as Alembic's dblock_0002 has them."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0001_lock_table"),)
    operations = (MigrateTables("dblock_0002", since="dblock_0001"),)
