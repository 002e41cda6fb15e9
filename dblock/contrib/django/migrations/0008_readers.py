"""The readers that share the hold of a name, as Alembic's dblock_0007 has it."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0007_value"),)
    operations = (MigrateTables("dblock_0007", since="dblock_0006"),)
