"""How a long queue is stored, as Alembic's dblock_0008 has it."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0008_readers"),)
    operations = (MigrateTables("dblock_0008", since="dblock_0007"),)
