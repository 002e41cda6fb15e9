"""The column that locks and guards write in a Galera cluster, as Alembic's dblock_0013 has it."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0013_comments"),)
    operations = (MigrateTables("dblock_0013", since="dblock_0012"),)
