"""A lock function in the database, and the statement that creates it."""

from __future__ import annotations

from typing import NamedTuple

#: How long a function waits for a row that another session has locked, or for the end of an earlier
#: call with its token.
LOCK_TIMEOUT = "5s"
AS_OWNER = f"SECURITY DEFINER SET lock_timeout = '{LOCK_TIMEOUT}'"


class SqlFunction(NamedTuple):
    """A function: its quoted name, its parameters and results, and how it is declared."""

    name: str
    takes: str
    gives: str
    comment: str
    body: str
    options: str = AS_OWNER

    def create(self, mark: str) -> str:
        """Return the statement that creates or replaces the function. Its comment ends with
        ``mark``.

        PUBLIC loses its rights on a new function. A function that is replaced keeps its rights.
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
