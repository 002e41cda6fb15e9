"""A leader's value on MariaDB, which cannot notify observers."""

from __future__ import annotations

from ...protocol.commands import WriteValue
from ..elections import ElectionStatements as Elections
from ..elections import is_written
from ..statement import statement
from .base import Tables


class ElectionStatements(Tables, Elections):
    """MariaDB's upsert has no WHERE, so each column repeats the condition. The fence is set last,
    because the condition reads it."""

    @statement(WriteValue, reads=is_written)
    def write_value(self) -> str:
        changes = ", ".join(
            f"{column} = IF({self.value_table}.fence BETWEEN 1 AND VALUES(fence), "
            f"VALUES({column}), {self.value_table}.{column})"
            for column in ("value", "written_at", "fence")
        )
        return f"""INSERT INTO {self.value_table} (lock_name, fence, value, written_at)
            {self.proven}
            ON DUPLICATE KEY UPDATE {changes}
            RETURNING fence"""
