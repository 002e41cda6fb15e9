"""A corrected comment, as Alembic's dblock_0012 has it."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0012_texts"),)
    operations = (MigrateTables("dblock_0012", since="dblock_0011"),)
