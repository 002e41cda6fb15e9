"""The calls that are made once, as Alembic's dblock_0005 has them."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0004_pause"),)
    operations = (MigrateTables("dblock_0005", since="dblock_0004"),)
