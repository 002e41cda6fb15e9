"""The values of names, beside their leases, as Alembic's dblock_0006 has them."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0006_run"),)
    operations = (MigrateTables("dblock_0006", since="dblock_0005"),)
