"""The record of jobs' runs, as Alembic's dblock_0003 has it."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0002_queue_and_witness"),)
    operations = (MigrateTables("dblock_0003", since="dblock_0002"),)
