"""The end of a pause and the revision, as Alembic's dblock_0004 has them."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0003_runs"),)
    operations = (MigrateTables("dblock_0004", since="dblock_0003"),)
