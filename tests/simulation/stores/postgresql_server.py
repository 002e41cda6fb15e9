"""A PostgreSQL server that takes its time, its history and its sessions from the simulation.

What a statement asks the server for beside its tables is shadowed by functions of the schema
``sim``, which precedes ``pg_catalog`` in the search path of the simulated sessions. They read small
files in the data directory, so all sessions see the same at once, and a statement that has waited
sees the moment at which it goes on. What a statement asks the server to do beside its tables they
tell the simulation, in notices, which come before a wait as well as before an answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from tests.servers.postgresql import PostgreSQL

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

# A file is never longer, so that it is written anew in its place.
_SIZE = 4096
#: When a user's transaction began, in a setting of its own.
BEGAN = "sim.began"
_CLOCK, _SESSIONS, _TIMELINE = "simulated_clock", "simulated_sessions", "simulated_timeline"

_SHADOWS = f"""
CREATE SCHEMA sim;

CREATE FUNCTION sim.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE COST 1
AS $$ SELECT pg_catalog.pg_read_file('{_CLOCK}')::timestamptz $$;

CREATE FUNCTION sim.now() RETURNS timestamptz LANGUAGE sql VOLATILE COST 1
AS $$ SELECT coalesce(nullif(current_setting('{BEGAN}', true), '')::timestamptz,
    sim.clock_timestamp()) $$;

CREATE FUNCTION sim.pg_walfile_name(lsn pg_lsn) RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT pg_catalog.pg_read_file('{_TIMELINE}')
    || substr(pg_catalog.pg_walfile_name(lsn), 9) $$;

CREATE FUNCTION sim.say(VARIADIC said text[]) RETURNS void LANGUAGE plpgsql VOLATILE
AS $$ BEGIN RAISE NOTICE '%', array_to_json(said); END $$;

CREATE FUNCTION sim.set_config(name text, value text, local boolean)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$ BEGIN
    IF name IN ('lock_timeout', 'statement_timeout', 'synchronous_commit') THEN
        PERFORM sim.say('set', name, value, local::text);
    END IF;
    RETURN CASE WHEN name LIKE '%_timeout' THEN value
        ELSE pg_catalog.set_config(name, value, local) END;
END $$;

CREATE FUNCTION sim.pg_notify(channel text, payload text) RETURNS void LANGUAGE sql VOLATILE
AS $$ SELECT sim.say('notify', channel, payload) $$;

CREATE FUNCTION sim.pg_terminate_backend(pid int) RETURNS boolean LANGUAGE sql VOLATILE
AS $$ SELECT sim.say('terminate', pid::text) IS NOT NULL $$;

CREATE VIEW sim.pg_stat_activity AS
    SELECT key::int AS pid, to_timestamp(value::int) AS backend_start, 'somebody' AS usename,
        '' AS application_name, NULL::timestamptz AS xact_start, NULL AS query,
        NULL::text AS wait_event
    FROM json_each_text(pg_catalog.pg_read_file('{_SESSIONS}')::json);

CREATE FUNCTION sim.pg_stat_get_activity(pid int) RETURNS SETOF sim.pg_stat_activity
LANGUAGE sql VOLATILE AS $$ SELECT * FROM sim.pg_stat_activity AS s WHERE s.pid = $1 $$;

CREATE TABLE sim.pg_settings AS SELECT name, setting, source FROM pg_catalog.pg_settings;
"""


class SimulatedServer(PostgreSQL):
    """A throw-away server for one simulation after the other."""

    def start(self) -> None:
        super().start()
        for name in (_CLOCK, _SESSIONS, _TIMELINE):
            path = self.data / name
            path.touch()
            path.chmod(0o644)
        self._clock = self._opened(_CLOCK)
        self._clock_at = -1.0
        self._connections: list[psycopg.Connection[tuple[Any, ...]]] = []
        self.set_clock(0.0)
        self.set_sessions({})
        self.set_timeline(1)

    def close(self) -> None:
        if hasattr(self, "_clock"):
            os.close(self._clock)
            for connection in self._connections:
                connection.close()
        super().close()

    def connect(self, database: str, *, simulated: bool) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a new session, of the simulation's or beside it."""
        connection = psycopg.connect(
            host=str(self.directory),
            port=self.port,
            user="postgres",
            dbname=database,
            autocommit=True,
            prepare_threshold=0,
            options="-c search_path=sim,pg_catalog,public" if simulated else None,
        )
        self._connections.append(connection)
        return connection

    def install(self, database: str) -> None:
        """Let the functions of the simulation be there."""
        with self.connect(database, simulated=False) as connection:
            connection.execute(_SHADOWS, prepare=False)

    # --- what they tell ----------------------------------------------------------------------

    def set_clock(self, seconds: float) -> None:
        """Let all sessions have the same time, so many seconds after the epoch."""
        if seconds != self._clock_at:
            self._clock_at = seconds
            os.pwrite(self._clock, told(seconds).encode(), 0)

    def set_timeline(self, number: int) -> None:
        self._write(_TIMELINE, f"{number:08X}")

    def set_sessions(self, sessions: Mapping[int, int]) -> None:
        """Let there be sessions: the numbers of those that their backends are used for."""
        self._write(_SESSIONS, json.dumps(sessions).ljust(_SIZE))

    def _write(self, name: str, text: str) -> None:
        descriptor = self._opened(name)
        try:
            os.pwrite(descriptor, text.encode(), 0)
        finally:
            os.close(descriptor)

    def _opened(self, name: str) -> int:
        return os.open(Path(self.data, name), os.O_WRONLY)

    def _command(self) -> Sequence[str | Path]:
        settings = {
            "autovacuum": "off",
            "bgwriter_lru_maxpages": "0",
            "checkpoint_timeout": "1d",
            "deadlock_timeout": "20d",  # it is found out in virtual time
            "jit": "off",
            "max_parallel_workers_per_gather": "0",
            "timezone": "UTC",
        }
        return [*super()._command(), *(f"--{name}={value}" for name, value in settings.items())]


def told(seconds: float) -> str:
    """Return a moment as the server reads it."""
    return f"{EPOCH + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S.%f+00}"
