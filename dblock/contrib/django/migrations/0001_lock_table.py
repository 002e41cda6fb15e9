"""dblock's tables, as Alembic's dblock_0001 has them."""

from __future__ import annotations

from django.db import migrations, models

from dblock.contrib.django.conf import conf
from dblock.contrib.django.models import LockName
from dblock.contrib.django.operations import MigrateTables


class Migration(migrations.Migration):
    initial = True
    dependencies = ()
    operations = (
        MigrateTables("dblock_0001"),
        migrations.CreateModel(
            name="Lock",
            fields=[
                (
                    "lock_name",
                    LockName(
                        max_length=255, primary_key=True, serialize=False, verbose_name="name"
                    ),
                ),
                ("fence", models.BigIntegerField()),
                ("owner", models.CharField(max_length=255, null=True, verbose_name="holder")),
                ("acquired_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": conf().table("lock"),
                "permissions": (("force_release_lock", "Can take a lock from its holder"),),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
    )
