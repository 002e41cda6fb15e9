"""Columns of text on PostgreSQL, as Alembic's dblock_0011 has them."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0011_arrivals"),)
    operations = (MigrateTables("dblock_0011", since="dblock_0010"),)
