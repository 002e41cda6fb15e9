"""A Django project in this process, whose database each test has for itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import django
import pymysql
import pytest
from django.conf import settings
from django.core.signals import setting_changed
from django.db import connections
from sqlalchemy.engine import make_url

from tests.conftest import Database, NewDatabase

ENGINES = {
    "postgresql": "postgresql",
    "mariadb": "mysql",
    "mysql": "mysql",
    "sqlite": "sqlite3",
}


def of(database: Database, **more: Any) -> dict[str, Any]:
    """The entry of DATABASES for a database of the tests."""
    url = make_url(database.url)
    options: dict[str, Any] = dict(url.query)
    if database.kind in ("mariadb", "mysql"):
        options["charset"] = "utf8mb4"
    return {
        "ENGINE": f"django.db.backends.{ENGINES[database.kind]}",
        "NAME": url.database,
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "HOST": url.host or "",
        "PORT": url.port or "",
        "OPTIONS": options,
        **more,
    }


#: Whether Django is on mysqlclient and psycopg2 here, as test_drivers.py has it in another process.
IN_C = os.environ.get("DBLOCK_TEST_DJANGO_DRIVERS") == "in C"


def _taken_out(package: str) -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == package]
    return {name: sys.modules.pop(name) for name in names}


if not settings.configured:
    if IN_C:  # Django takes psycopg 3 wherever that is
        sys.modules["psycopg"] = None  # type: ignore[assignment]
        import_module("django.db.backends.postgresql.base")
        del sys.modules["psycopg"]
    else:
        # For Django alone: other tests have mysqlclient.
        theirs = _taken_out("MySQLdb")
        pymysql.install_as_MySQLdb()
        import_module("django.db.backends.mysql.base")
        _taken_out("MySQLdb")
        sys.modules.update(theirs)
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "/no/where"}},
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "dblock.contrib.django",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        ROOT_URLCONF="tests.contrib.django.urls",
        SECRET_KEY="of the tests",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    )
    django.setup()
    # They read the settings when they are imported, which a test with others may not be the first
    # to do.
    import_module("django.db.migrations.loader").MigrationLoader(None)


class Site:
    """The project with a database in place."""

    def __init__(self) -> None:
        self.before = dict(connections.settings)

    def use(self, alias: str = "default", **entry: Any) -> None:
        self.forget()
        settings.DATABASES[alias] = entry
        connections.settings = connections.configure_settings(settings.DATABASES)
        if any(wrapper.alias == alias for wrapper in connections.all(initialized_only=True)):
            del connections[alias]

    def forget(self) -> None:
        setting_changed.send(sender=None, setting="DBLOCK", value={}, enter=False)
        wrapper: Any
        for wrapper in connections.all(initialized_only=True):
            wrapper.close()
            if getattr(wrapper, "pool", None):
                wrapper.close_pool()

    def close(self) -> None:
        self.forget()
        for alias in set(settings.DATABASES) - {"default"}:
            del settings.DATABASES[alias]
        self.use("default", ENGINE="django.db.backends.sqlite3", NAME="/no/where")


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.fixture
def dj(db: Database, site: Site) -> Database:
    """Django's default database: a new one with dblock's tables, of each kind."""
    site.use(**of(db))
    return db


@pytest.fixture
def empty(database: Database, site: Site) -> Database:
    site.use(**of(database))
    return database


@pytest.fixture
def pg(new_database: NewDatabase, site: Site) -> Database:
    database = new_database("postgresql", migrated=True)
    site.use(**of(database))
    return database
