"""The triggers that notice rows from another server, as Alembic's dblock_0010 has them."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0010_identity"),)
    operations = (MigrateTables("dblock_0010", since="dblock_0009"),)
