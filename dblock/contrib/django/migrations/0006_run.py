"""The record of jobs' runs for the admin. It changes no table."""

from __future__ import annotations

from django.db import migrations, models

from dblock.contrib.django.conf import conf
from dblock.contrib.django.models import LockName, RunKey


class Migration(migrations.Migration):
    dependencies = (("dblock", "0005_once"),)
    operations = (
        migrations.CreateModel(
            name="Run",
            fields=[
                ("key", RunKey(max_length=255, primary_key=True, serialize=False)),
                ("lock_name", LockName(max_length=255, verbose_name="job")),
                ("slot", LockName(max_length=255)),
                ("fence", models.BigIntegerField()),
                ("owner", models.CharField(max_length=255, null=True, verbose_name="host")),
                ("started_at", models.DateTimeField(verbose_name="started")),
                ("ended_at", models.DateTimeField(null=True, verbose_name="ended")),
                ("exit_status", models.IntegerField(null=True)),
            ],
            options={
                "db_table": conf().table("run"),
                "permissions": (("reopen_run", "Can let a job run again in a slot"),),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
    )
