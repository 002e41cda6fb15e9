"""Alembic's environment: for `alembic upgrade head` in a checkout, and for `dblock upgrade`.

In a checkout the database comes from `-x url=...`, from DBLOCK_URL or from alembic.ini, and the
tables' place from `-x schema=... -x prefix=...`.
"""

from __future__ import annotations

import os
from typing import Any

from alembic import context

from dblock.schema.migrate import migrating

config = context.config
x = context.get_x_argument(as_dictionary=True)
schema = config.attributes.get("schema", x.get("schema"))
prefix = config.attributes.get("prefix", x.get("prefix", "dblock_"))


def run(**where: Any) -> None:
    context.configure(
        version_table=f"{prefix}version",
        version_table_schema=schema,
        dblock_schema=schema,
        dblock_prefix=prefix,
        **where,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    run(dialect_name=x.get("dialect", "postgresql"))
elif "connection" in config.attributes:
    run(connection=config.attributes["connection"])
else:
    given = {"-x url": x.get("url"), "DBLOCK_URL": os.environ.get("DBLOCK_URL")}
    for what, value in given.items():
        if value is not None and not value.strip():
            raise SystemExit(f"{what} is empty: give the database's URL there, or leave it out")
    url = next(filter(None, given.values()), config.get_main_option("sqlalchemy.url"))
    if not url:
        raise SystemExit("which database? Set DBLOCK_URL, or give -x url=...")
    with migrating(url, schema=schema, prefix=prefix) as connection:
        run(connection=connection)
