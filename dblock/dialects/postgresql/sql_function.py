"""One function of the database, and the statement that creates it."""

from __future__ import annotations

from typing import NamedTuple

#: How long a function waits for a row that others write to, or for an earlier call with its token.
LOCK_TIMEOUT = "5s"
AS_OWNER = f"SECURITY DEFINER SET lock_timeout = '{LOCK_TIMEOUT}'"


class SqlFunction(NamedTuple):
    """A function: its quoted name, what it takes and gives, and how it is declared."""

    name: str
    takes: str
    gives: str
    comment: str
    body: str
    options: str = AS_OWNER

    def create(self, mark: str) -> str:
        """Return the statement that creates it, or replaces it. Its comment ends with ``mark``.

        What every role may do with a new one is taken away. Of one that is there the rights stay.
        """
        kinds = ", ".join(part.split(" ", 1)[1] for part in self.takes.split(", "))
        name, comment = self.name.replace("'", "''"), self.comment.replace("'", "''")
        return f"""DO $create$
DECLARE
    new boolean := to_regproc('{name}') IS NULL;
BEGIN
    CREATE OR REPLACE FUNCTION {self.name}({self.takes}{self.gives})
    LANGUAGE plpgsql {self.options} SET search_path = pg_catalog, pg_temp
    AS $function${self.body}$function$;
    IF new THEN
        REVOKE ALL ON FUNCTION {self.name}({kinds}) FROM PUBLIC;
    END IF;
    COMMENT ON FUNCTION {self.name}({kinds}) IS '{comment} {mark}';
END $create$"""
