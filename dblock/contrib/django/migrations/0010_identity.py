"""The identity of a set of tables, as Alembic's dblock_0009 has it."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0009_queue_storage"),)
    operations = (MigrateTables("dblock_0009", since="dblock_0008"),)
