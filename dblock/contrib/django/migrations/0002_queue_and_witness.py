"""The queue, the waiters and the witness, as Alembic's dblock_0002 has them."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0001_lock_table"),)
    operations = (Tables("dblock_0002", since="dblock_0001"),)
