"""The place of the migrations."""

from __future__ import annotations

from pathlib import Path

from alembic.config import Config


def migrations() -> Path:
    """Return the directory of the migrations (an Alembic script location)."""
    package = Path(__file__).parent.parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def config(schema: str | None, prefix: str) -> Config:
    """Return Alembic's configuration for the migrations, with the place of the tables."""
    made = Config()
    made.set_main_option("script_location", str(migrations()).replace("%", "%%"))
    made.attributes["schema"] = schema
    made.attributes["prefix"] = prefix
    return made
