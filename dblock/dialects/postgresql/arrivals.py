"""What tells a server of PostgreSQL's that rows have come from another one.

A witness vouches for what this server has granted. Logical replication brings rows that another
server has granted, and it brings no witness, as its table is UNLOGGED. So triggers on the tables
that it writes take the witness's word away, with the very rows: the next grant begins a new epoch,
with its pause, above all fences of both servers.

They are fired in sessions of replication alone, so a grant pays nothing for them. The epoch's
trigger is also fired where a tool copies its row in a session of another kind: its writer shows
that.

The epoch that comes and the one that was here become one: neither its number nor its longest TTL
falls. A publication of the lock table alone lacks the longest TTL. So the longest TTL is never less
than the rest of a lease that comes.
"""

from __future__ import annotations

_PLACE = "quote_ident(TG_TABLE_SCHEMA) || '.' || quote_ident(TG_ARGV[{}])"

# It is run by sessions that have no search_path, or anybody's.
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

# Tools that disable all triggers, and enable them again, make these such of all sessions.
_REPLICATED = "current_setting('session_replication_role') = 'replica'"
# Or its writer is another transaction: dblock's statements name their own.
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
