"""The lease as functions of the database, for programs in any language.

Each function is made of the statements that dblock itself sends, so its callers and dblock's
exclude each other. If the protocol needs several statements, to consult the witness or to settle a
lost reply, the function has PL/pgSQL for that.

A function is a transaction of its own, or a part of the caller's. So it leaves no setting behind
but the setting that makes a grant durable. Its release is not lazy, because the caller's commit
would then be lazy too. And it writes the witness in one transaction with the grant; dblock takes
three. That is as safe while the lock table is logged: a standby that has a grant has everything
written before it. If the table is not logged, and commits wait for standbys, the function refuses
to record a longer TTL.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from ...protocol.commands import Gate, Look
from ...protocol.epoch import ROUNDS
from ..waiters import WaiterStatements
from . import function_checks as check
from .fragments import LAZY, PATIENT
from .lease import LeaseStatements
from .row import RowStatements
from .sql_function import AS_OWNER, SqlFunction
from .witness import WRITER

# The placeholder of the schema, if only the server knows it. Its apostrophe makes it a different
# text within a literal, and there the schema has to be quoted twice.
_SOMEWHERE = "here'"

_GATE_TABLE = "The largest fence of each name that has passed dblock_gate."

#: The functions for callers. The others are internal.
NAMES = ("acquire", "renew", "release", "show", "gate")


class FunctionStatements(WaiterStatements, LeaseStatements, RowStatements):
    """The statements that create, find and drop the functions. Each may be run again."""

    def create_functions(self) -> tuple[str, ...]:
        there, mark = self._there(), self._mark
        made = [function.create(mark) for function in there._functions()]
        made.insert(0, there._gate_table())
        otherwise = "RAISE undefined_table USING MESSAGE = 'dblock has no tables here'"
        return tuple(self._placed(statement, otherwise) for statement in made)

    def drop_functions(self) -> tuple[str, ...]:
        there = self._there()
        return tuple(
            self._placed(f"DROP FUNCTION IF EXISTS {function.name}", "NULL")
            for function in there._functions()
        )

    def drop_gate(self) -> tuple[str, ...]:
        table = self._there()._named("fence")
        drop = f"""DO $drop$
BEGIN
    IF obj_description(to_regclass({self.literal(table)})::oid, 'pg_class') = '{_GATE_TABLE}' THEN
        DROP TABLE {table};
    END IF;
END $drop$"""
        return (self._placed(drop, "NULL"),)

    def find_functions(self) -> str:
        names = ", ".join(self.literal(self.prefix + name) for name in NAMES)
        mark = self._mark
        return f"""SELECT p.proname,
                right(obj_description(p.oid, 'pg_proc'), {len(mark)}) IS NOT DISTINCT FROM '{mark}'
            FROM pg_proc AS p
            JOIN pg_class AS c ON c.relnamespace = p.pronamespace
            WHERE c.oid = to_regclass({self.literal(self.table("lock"))})::oid
                AND p.proname IN ({names})
            ORDER BY p.proname"""

    @property
    def _mark(self) -> str:
        """The end of the functions' comments: a hash of their bodies, the same in every schema."""
        there = type(self)(_SOMEWHERE, self.prefix, self.timeouts, self.adapter)
        bodies = "".join(function.body for function in there._functions())
        return f"(dblock {blake2b(bodies.encode(), digest_size=4).hexdigest()})"

    # --- where they are ----------------------------------------------------------------------

    def _there(self) -> FunctionStatements:
        """Return the statements with all tables qualified: a function has no search_path."""
        return type(self)(self.schema or _SOMEWHERE, self.prefix, self.timeouts, self.adapter)

    def _placed(self, statement: str, otherwise: str) -> str:
        """Return a statement that runs in the schema of the tables, which the server looks up.

        If there are no tables the server runs ``otherwise``.
        """
        if self.schema:
            return statement
        name = self.quote(_SOMEWHERE)
        within = name.replace("'", "''")
        return f"""DO $place$
DECLARE
    place text := (SELECT relnamespace::regnamespace::text FROM pg_class
        WHERE oid = to_regclass({self.literal(self.table("lock"))})::oid);
BEGIN
    IF place IS NULL THEN
        {otherwise};
    ELSE
        EXECUTE replace(replace($text${statement}$text$, {self.literal(name)}, place),
            {self.literal(within)}, replace(place, '''', ''''''));
    END IF;
END $place$"""

    # --- the functions -----------------------------------------------------------------------

    def _functions(self) -> tuple[SqlFunction, ...]:
        return (
            self._trust(),
            self._renew_by_function(),
            self._acquire_by_function(),
            self._release_by_function(),
            self._show_by_function(),
            self._pass_gate(),
        )

    def _trust(self) -> SqlFunction:
        """:func:`~dblock.protocol.epoch.consult`, with the rights of the function that calls it."""
        # A row that is written in a savepoint has the savepoint's `xmin`, not the transaction's
        # that it names. No caller would believe it: each would take that for a failover.
        unbelievable = " UNION ALL ".join(
            f"SELECT FROM {table} WHERE writer = {WRITER} AND writer <> xmin::text"
            for table in (self.witness_table, self.epoch_table)
        )
        return SqlFunction(
            self._named("trust"),
            "ttl double precision",
            ", OUT epoch bigint, OUT pause double precision",
            "Reads dblock's witness, and writes it where it is missing, for the other functions.",
            f"""
#variable_conflict use_column
DECLARE
    longest double precision;
    ignored record;
BEGIN
    FOR round IN 1..{ROUNDS} LOOP
        SELECT w.epoch, w.pause, w.longest INTO epoch, pause, longest
        FROM ({_with(self.witness)}) AS w (epoch, cause, pause, longest);
        IF longest >= $1 THEN
            RETURN;
        ELSIF longest IS NULL THEN
            {_with(self.write_witness)} INTO ignored;
        ELSE
            IF current_setting('synchronous_standby_names') <> '' AND EXISTS (
                SELECT FROM pg_class WHERE oid = {self.oid(self.lock_table)}::oid
                    AND relpersistence = 'u'
            ) THEN
                RAISE object_not_in_prerequisite_state USING
                    MESSAGE = 'the lock table is volatile and the server has synchronous standbys: '
                        'there no function can record a TTL that is longer than all before',
                    HINT = 'Make the table durable: dblock upgrade --durability durable';
            END IF;
            {_with(self.announce_ttl, ttl="$1")} INTO ignored;
            {_with(self.record_ttl, ttl="$1")};
        END IF;
        IF EXISTS ({unbelievable}) THEN
            RAISE active_sql_transaction USING
                MESSAGE = 'the function has to record a TTL, or that a crash was noticed, and it '
                    'cannot do that in a savepoint',
                HINT = 'Call it once, with the same TTL, outside savepoints and exception blocks';
        END IF;
    END LOOP;
    RAISE object_not_in_prerequisite_state USING
        MESSAGE = 'the witness cannot be written: its table has to be UNLOGGED';
END """,
            options="",
        )

    def _renew_by_function(self) -> SqlFunction:
        renewed = _with(
            self.renew,
            names="ARRAY[$1]",
            tokens="ARRAY[$2]",
            ttls="ARRAY[$3]",
            ttl="$3",
        )
        return SqlFunction(
            self._named("renew"),
            "name text, token text, ttl double precision",
            ", OUT fence bigint, OUT expires_in double precision",
            "Sets a lease to expire in ttl seconds; returns NULL if the lease is lost.",
            f"""
#variable_conflict use_column
DECLARE
    state record;
    known record;
    ignored record;
    renewed boolean;
BEGIN{check.NAME}{check.TOKEN}{check.ttl("$3")}{check.ISOLATION}
    FOR round IN 1..{ROUNDS} LOOP
        {renewed} INTO ignored;
        renewed := FOUND;
        SELECT * INTO state FROM {self._looked}
        WHERE l.token = $2 AND l.remaining > 0;
        IF NOT FOUND THEN
            RETURN;
        ELSIF renewed THEN
            fence := state.fence;
            expires_in := state.remaining;
            RETURN;
        END IF;
        SELECT * INTO known FROM {self._named("trust")}($3);
        IF state.fence <= known.epoch THEN
            RETURN;
        END IF;
        -- Its row was in use, or the witness did not know of the TTL.
        PERFORM FROM {self.lock_table} WHERE lock_name = $1 FOR NO KEY UPDATE;
    END LOOP;
    RAISE lock_not_available USING MESSAGE = format('the row of %L is in use', $1);
END """,
        )

    def _acquire_by_function(self) -> SqlFunction:
        asked = {"name": "$1", "token": "$2", "owner": "$3", "ttl": "$4"}
        granted = "INTO fence, expires_in, ignored"
        return SqlFunction(
            self._named("acquire"),
            "name text, token text, owner text, ttl double precision",
            ", OUT fence bigint, OUT expires_in double precision, OUT holder text,"
            " OUT frees_in double precision",
            "Takes a lease, or tells the holder; with the token of a hold renews that.",
            f"""
#variable_conflict use_column
DECLARE
    state record;
    pause double precision;
    ignored text;
BEGIN{check.NAME}{check.TOKEN}{check.OWNER}{check.ttl("$4")}{check.ISOLATION}
    {_ONE_BY_ONE}
    {_with(self.grant_known, **asked)} {granted};
    IF FOUND THEN
        RETURN;
    END IF;
    FOR round IN 1..2 LOOP
        SELECT * INTO state FROM {self._looked};
        IF state.token = $2 AND state.remaining > 0 THEN
            SELECT r.fence, r.expires_in INTO fence, expires_in
            FROM {self._named("renew")}($1, $2, $4) AS r;
            IF fence IS NOT NULL THEN
                RETURN;
            END IF;
        ELSIF state.token IS NOT NULL AND state.remaining > 0 THEN
            holder := state.owner;
            frees_in := state.remaining;
            RETURN;
        END IF;
        EXIT WHEN round = 2;
        SELECT t.pause INTO pause FROM {self._named("trust")}($4) AS t;
        IF pause > 0 THEN
            frees_in := pause;
            RETURN;
        END IF;
        {_with(self.grant_new, **asked)} {granted};
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
    frees_in := 0;
END """,
        )

    def _release_by_function(self) -> SqlFunction:
        asked = {"name": "$1", "token": "$2", "passes": "true"}
        return SqlFunction(
            self._named("release"),
            "name text, token text",
            ", OUT released boolean",
            "Releases a lease, to the first waiter; returns false if the token does not have it.",
            f"""
#variable_conflict use_column
DECLARE
    ignored record;
BEGIN{check.NAME}{check.TOKEN}{check.ISOLATION}
    {_ONE_BY_ONE}
    {_with(self.release, **asked)} INTO ignored;
    released := FOUND;
    IF NOT released THEN
        {_with(self.pass_on, **asked)} INTO ignored;
        released := FOUND;
    END IF;
END """,
        )

    def _show_by_function(self) -> SqlFunction:
        return SqlFunction(
            self._named("show"),
            "name text",
            ", OUT holder text, OUT fence bigint, OUT since timestamptz,"
            " OUT expires_in double precision, OUT waiters bigint",
            "Tells the holder of a name, NULL if it is free, and how many processes wait for it.",
            f"""
#variable_conflict use_column
DECLARE
    state record;
BEGIN{check.NAME}
    SELECT * INTO state FROM {self._looked};
    fence := coalesce(state.fence, 0);
    IF state.token IS NOT NULL AND state.remaining > 0 THEN
        holder := state.owner;
        since := state.acquired_at;
        expires_in := state.remaining;
    END IF;
    SELECT count(*) INTO waiters FROM ({_with(self.waiters_of_one, name="$1")}) AS w;
END """,
            options=f"STABLE {AS_OWNER}",
        )

    def _pass_gate(self) -> SqlFunction:
        return SqlFunction(
            self._named("gate"),
            "name text, fence bigint",
            ", OUT newest bigint",
            "Lets a fence pass, in the transaction that writes; fails if a larger one has passed.",
            f"""
#variable_conflict use_column
BEGIN{check.NAME}{check.FENCE}
    {_with(self.gate(Gate(self._named("fence"), "", 0)), name="$1", fence="$2")} INTO newest;
    IF newest > $2 THEN
        RAISE EXCEPTION USING ERRCODE = '{check.STALE_FENCE}',
            MESSAGE = format('fence %s of %L is stale: fence %s has passed, so another process has '
                'held the lock since', $2, $1, newest),
            HINT = 'Roll this transaction back';
    END IF;
END """,
            options="SECURITY DEFINER",  # it waits for as long as the caller's session does
        )

    @property
    def _looked(self) -> str:
        """A name's row, for a FROM clause."""
        return (
            f"({_with(self.look(Look(('',))), name='$1')}) AS l "
            "(lock_name, fence, token, owner, acquired_at, expires_at, remaining, readers)"
        )

    def _gate_table(self) -> str:
        table = self._named("fence")
        return f"""DO $create$
BEGIN
    IF to_regclass({self.literal(table)}) IS NULL THEN
        CREATE TABLE {table} (
            name text COLLATE "C" NOT NULL,
            fence bigint NOT NULL,
            CONSTRAINT "{self.prefix}fence_pkey" PRIMARY KEY (name)
        );
        COMMENT ON TABLE {table} IS '{_GATE_TABLE}';
    END IF;
END $create$"""


# An earlier call with this token, whose reply was lost, may still be running. Wait for its end.
_ONE_BY_ONE = "PERFORM pg_advisory_xact_lock(hashtextextended($2, 0));"


def _with(sql: str, **values: str) -> str:
    """Return one of dblock's statements with other values in place of its parameters.

    The settings for the rest of its transaction are left out: that is the caller's. It waits for as
    long as the function's lock timeout allows.
    """
    sql = sql.replace(LAZY, "NULL").replace(PATIENT, "true")
    return re.sub(r"%\((\w+)\)s", lambda found: values[found[1]], sql).replace("%%", "%")
