"""Triggers with which a PostgreSQL server notices rows that come from another server.

A witness vouches for the grants of its own server. Logical replication brings rows that another
server has granted, and no witness, whose table is UNLOGGED. So triggers on the tables that
replication writes void the witness, in the transaction that brings the rows. The next grant begins
a new epoch, with its pause, above all fences of both servers.

The server fires them in sessions of replication alone, so a grant pays nothing for them. It fires
the epoch's trigger also when a tool copies the row in an ordinary session: the row's writer shows
that.

The trigger merges the epoch that comes with the epoch that is here: neither its number nor its
longest TTL falls. A publication of the lock table alone lacks the longest TTL. So a lease that
comes raises the longest TTL here to its remaining time.
"""

from __future__ import annotations

_PLACE = "quote_ident(TG_TABLE_SCHEMA) || '.' || quote_ident(TG_ARGV[{}])"

# Its search_path is fixed: a session that runs it may have none, or any other.
_FUNCTION = f"""CREATE OR REPLACE FUNCTION {{function}}() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    epoch text := {_PLACE.format(0)};
    witness text := {_PLACE.format(1)};
    {{variable}};
BEGIN
    EXECUTE 'UPDATE ' || witness || ' SET writer = '''' WHERE writer <> ''''';"""

_LOCK_ARRIVED = f"""{_FUNCTION.replace("{variable}", "lasts float8")}
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        lasts := CASE WHEN NEW.token IS NOT NULL
            THEN extract(epoch FROM NEW.expires_at - clock_timestamp()) END;
    END IF;
    EXECUTE 'UPDATE ' || epoch || ' SET server = NULL, longest_ttl = greatest(longest_ttl, $1)'
        ' WHERE server IS NOT NULL OR $1 > coalesce(longest_ttl, 0)' USING lasts;
    RETURN NULL;
END $$"""

_EPOCH_ARRIVED = f"""{_FUNCTION.replace("{variable}", "before record := OLD")}
    IF TG_OP = 'INSERT' THEN
        EXECUTE 'DELETE FROM ' || epoch || ' WHERE id = $1 RETURNING *' INTO before USING NEW.id;
    END IF;
    NEW.server := NULL;
    NEW.epoch := greatest(NEW.epoch, before.epoch);
    NEW.longest_ttl := greatest(NEW.longest_ttl, before.longest_ttl);
    RETURN NEW;
END $$"""

# The condition repeats ENABLE REPLICA: a tool that disables all triggers and enables them again
# enables these for all sessions.
_REPLICATED = "current_setting('session_replication_role') = 'replica'"
# Replicated, or the row's writer is another transaction: dblock's statements write their own.
_COPIED = f"{_REPLICATED} OR NEW.writer IS DISTINCT FROM pg_current_xact_id()::xid::text"


def triggers(table: str, schema: str | None, prefix: str) -> tuple[str, ...]:
    """Return the statements that make the triggers of ``lock``, or of ``epoch``.

    They can be run again.
    """
    function = dict(zip(("lock", "epoch"), functions(schema, prefix), strict=True))[table]
    on, arrived, emptied = _name(schema, prefix, table), f'"{prefix}arrived"', f'"{prefix}emptied"'
    execute = f"EXECUTE FUNCTION {function}('{prefix}epoch', '{prefix}witness')"
    if table == "epoch":
        return (
            _EPOCH_ARRIVED.format(function=function),
            f"CREATE OR REPLACE TRIGGER {arrived} BEFORE INSERT OR UPDATE ON {on} FOR EACH ROW "
            f"WHEN ({_COPIED}) {execute}",
            f"ALTER TABLE {on} ENABLE ALWAYS TRIGGER {arrived}",
        )
    return (
        _LOCK_ARRIVED.format(function=function),
        f"CREATE OR REPLACE TRIGGER {arrived} AFTER INSERT OR UPDATE OR DELETE ON {on} "
        f"FOR EACH ROW WHEN ({_REPLICATED}) {execute}",
        f"CREATE OR REPLACE TRIGGER {emptied} AFTER TRUNCATE ON {on} "
        f"WHEN ({_REPLICATED}) {execute}",
        f"ALTER TABLE {on} ENABLE REPLICA TRIGGER {arrived}, ENABLE REPLICA TRIGGER {emptied}",
    )


def functions(schema: str | None, prefix: str) -> tuple[str, str]:
    """Return the names of the functions that the triggers run: the lock table's, the epoch's."""
    return _name(schema, prefix, "lock_arrived"), _name(schema, prefix, "epoch_arrived")


def _name(schema: str | None, prefix: str, name: str) -> str:
    return (f'"{schema}".' if schema else "") + f'"{prefix}{name}"'
