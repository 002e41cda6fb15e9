"""The calls that are made once, as Alembic's dblock_0005 has them."""

from __future__ import annotations

from django.db import migrations

from dblock.contrib.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("dblock", "0004_pause"),)
    operations = (Tables("dblock_0005", since="dblock_0004"),)
