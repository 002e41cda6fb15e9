"""The application: ``INSTALLED_APPS = [..., "dblock.contrib.django"]``."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import Tags, register


class DBLockConfig(AppConfig):
    name = "dblock.contrib.django"
    label = "dblock"
    verbose_name = "dblock"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks

        register(checks.settings_are_right, Tags.compatibility)
        register(checks.sqlite_serves_one_host, Tags.compatibility, deploy=True)
        register(checks.database_is_ready, Tags.database)
