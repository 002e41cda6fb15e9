"""The settings. DATABASE_URL names the database; without it, a SQLite file beside manage.py."""

import os
from pathlib import Path

from sqlalchemy import make_url

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = os.environ.get("SECRET_KEY", "known to everybody, as this is an example")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
STATIC_URL = "static/"
TIME_ZONE = "UTC"
USE_TZ = True
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"]},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "dblock.contrib.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
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
]

# dblock uses this very entry: there is nothing more to configure.
url = make_url(os.environ.get("DATABASE_URL", f"sqlite:///{BASE_DIR / 'shop.db'}"))
BACKENDS = {"postgresql": "postgresql", "mariadb": "mysql", "mysql": "mysql", "sqlite": "sqlite3"}
DATABASES = {
    "default": {
        "ENGINE": f"django.db.backends.{BACKENDS[url.get_backend_name()]}",
        "NAME": url.database,
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "HOST": url.host or "",
        "PORT": url.port or "",
        "OPTIONS": dict(url.query),
    }
}
if url.get_backend_name() in ("mariadb", "mysql"):
    import pymysql

    pymysql.install_as_MySQLdb()  # for Django, which asks for mysqlclient
