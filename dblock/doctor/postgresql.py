"""The checks for PostgreSQL.

They look at the settings of a fresh session, ``reset_val``: dblock's own sessions change some.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..dialects.look_alikes import recognise
from ..dialects.postgresql.arrivals import triggers
from ..dialects.values import text
from .common import TABLES
from .finding import RESTORE_KEY, Check, Finding, Patient, note, ok, trusted, wrong
from .postgresql_replication import replication
from .postgresql_settings import reset, role_of, settings, system

IDLE = ("idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout")


def server(patient: Patient) -> Iterator[Finding]:
    ((said, version, standby),) = patient.ask(
        "SELECT version(), current_setting('server_version'), pg_is_in_recovery()"
    )
    other = recognise(text(said), patient.dialect.adapter.real)
    if other is not None:
        yield trusted(other)
    elif standby:
        yield wrong(
            "server",
            f"PostgreSQL {version}, a standby",
            "no lock can be taken",
            "give dblock the URL of the primary",
        )
    else:
        yield ok("server", f"PostgreSQL {version}")


def pooler(patient: Patient) -> Iterator[Finding]:
    if patient.connection.session.end is not None:
        yield ok("pooler", "none")
        return
    yield note(
        "pooler",
        "a pooler, perhaps in transaction mode",
        "dblock sets no limits on its sessions there, so only the server's own limits apply; a "
        "guard, and a row lock in your own transaction, need a second connection",
        "give your own engine prepare_threshold=None, and make the pool larger than the number of "
        "such transactions; or give dblock a URL that goes to the server itself",
    )


def isolation(patient: Patient) -> Iterator[Finding]:
    level = settings(patient, "default_transaction_isolation")["default_transaction_isolation"]
    if level == "read committed":
        yield ok("isolation", level)
        return
    yield note(
        "isolation",
        f"{level} by default",
        "a row lock or a guard raises Conflict if the row has changed since your transaction's "
        "snapshot",
        "take the lock first in the transaction, and run the transaction again on Conflict; or use "
        "READ COMMITTED",
    )


def access(patient: Patient) -> Iterator[Finding]:
    preset = settings(patient, "default_transaction_read_only")["default_transaction_read_only"]
    if preset == "off":
        yield ok("access", "transactions may write")
    else:
        yield wrong(
            "access",
            "default_transaction_read_only = on",
            "no lock can be taken",
            reset(patient, "default_transaction_read_only", "off"),
        )


def encoding(patient: Patient) -> Iterator[Finding]:
    ((name,),) = patient.ask("SELECT current_setting('server_encoding')")
    if name == "UTF8":
        yield ok("encoding", name)
    elif name == "SQL_ASCII":
        yield note(
            "encoding",
            name,
            "dblock's own connections write UTF-8, and other clients may read it as other "
            "characters",
            "give your own connections client_encoding=utf8, or use a database in UTF8",
        )
    else:
        yield note(
            "encoding",
            name,
            "dblock refuses names, labels and keys with characters that this encoding lacks",
            "use a database in UTF8",
        )


def durability(patient: Patient) -> Iterator[Finding]:
    found = settings(patient, "fsync", "full_page_writes", "synchronous_commit")
    for name in ("fsync", "full_page_writes"):
        if found.get(name) == "off":
            yield wrong(
                name,
                "off",
                "a crash of the server can lose grants and damage the tables: two may hold a name",
                system(name, "on"),
            )
    unlogged = {
        name
        for (name,) in patient.ask(
            "SELECT wanted.name FROM (VALUES ('lock', %(lock)s), ('run', %(run)s), "
            "('witness', %(witness)s)) AS wanted (name, place) "
            "JOIN pg_class ON pg_class.oid = to_regclass(wanted.place)::oid "
            "WHERE relpersistence = 'u'",
            lock=patient.dialect.table("lock"),
            run=patient.dialect.table("run"),
            witness=patient.dialect.table("witness"),
        )
    }
    if "witness" not in unlogged:
        yield wrong(
            "witness",
            "its table is not UNLOGGED",
            "it outlives a crash and a failover, so dblock does not notice that leases were "
            "forgotten: two may hold a name",
            f"ALTER TABLE {patient.dialect.table('witness')} SET UNLOGGED;",
        )
    if "run" in unlogged:
        yield wrong(
            "unlogged",
            "the table of runs is UNLOGGED",
            "it is empty after a crash or a failover, so a job may run again for its slot",
            f"ALTER TABLE {patient.dialect.table('run')} SET LOGGED;",
        )
    if "lock" in unlogged:
        yield note(
            "volatile",
            "the lock table is UNLOGGED",
            "after a crash dblock grants nothing until the longest TTL is over",
            "if you do not want that pause:\ndblock upgrade --durability durable",
        )
    yield ok("synchronous_commit", f"{found['synchronous_commit']}; for a grant at least local")


def collation(patient: Patient) -> Iterator[Finding]:
    rows = patient.ask(
        "SELECT collname FROM pg_attribute JOIN pg_collation ON pg_collation.oid = attcollation "
        "WHERE attrelid = to_regclass(%(lock)s)::oid AND attname = 'lock_name'",
        lock=patient.dialect.table("lock"),
    )
    for (name,) in rows:
        if name in ("C", "POSIX"):
            yield ok("collation", f"names are compared byte by byte ({name})")
        else:
            yield wrong(
                "collation",
                f"lock_name has the collation {name}",
                "different names may be the same lock, and an update of the operating system can "
                "break the index",
                f"ALTER TABLE {patient.dialect.table('lock')} "
                'ALTER lock_name TYPE text COLLATE "C";',
            )


def index(patient: Patient) -> Iterator[Finding]:
    for name in TABLES:
        table = patient.dialect.table(name)
        ((there, good),) = patient.ask(
            "SELECT to_regclass(%(table)s) IS NOT NULL, EXISTS (SELECT FROM pg_index WHERE "
            "indrelid = to_regclass(%(table)s)::oid AND indisprimary AND indisvalid)",
            table=table,
        )
        if not there:
            continue
        if good:
            yield ok(f"index of {name}", "there, and valid")
        else:
            yield wrong(
                f"index of {name}",
                f"{table} has no valid primary key",
                "one name can have two rows, and so two holders",
                RESTORE_KEY,
            )


def arrivals(patient: Patient) -> Iterator[Finding]:
    """Check that the triggers which notice rows from another server are enabled as they must be."""
    dialect = patient.dialect
    if patient.ask("SELECT to_regclass(%(lock)s) IS NULL", lock=dialect.table("lock")) == [(True,)]:
        return
    wanted = {"arrived of lock": "R", "emptied of lock": "R", "arrived of epoch": "A"}
    found = {
        f"{text(trigger).removeprefix(dialect.prefix)} of {text(table)}": text(fired)
        for trigger, table, fired in patient.ask(
            "SELECT t.tgname, wanted.name, t.tgenabled FROM (VALUES ('lock', %(lock)s), "
            "('epoch', %(epoch)s)) AS wanted (name, place) JOIN pg_trigger AS t "
            "ON t.tgrelid = to_regclass(wanted.place)::oid WHERE NOT t.tgisinternal",
            lock=dialect.table("lock"),
            epoch=dialect.table("epoch"),
        )
    }
    lacking = [name for name, fired in wanted.items() if found.get(name) != fired]
    if lacking:
        yield wrong(
            "triggers",
            f"not there, or not as they were made: {', '.join(lacking)}",
            "if another server's rows come by logical replication, dblock does not notice: two may "
            "hold a name",
            "\n".join(
                f"{statement};"
                for table in ("epoch", "lock")
                for statement in triggers(table, dialect.schema, dialect.prefix)
            ),
        )
    elif patient.ask("SELECT current_setting('session_replication_role')") == [("replica",)]:
        yield wrong(
            "triggers",
            "session_replication_role = replica in this role's sessions",
            "dblock takes each grant for a row from another server, so it pauses after each",
            "ALTER ROLE CURRENT_USER RESET session_replication_role;",
        )
    else:
        yield ok("triggers", "rows from another server are noticed")


def idle_timeouts(patient: Patient) -> Iterator[Finding]:
    limits = {name: value for name, value in settings(patient, *IDLE).items() if value != "0"}
    if not limits:
        yield ok("idle timeouts", "none")
        return
    yield note(
        "idle timeouts",
        ", ".join(f"{name} = {value} ms" for name, value in limits.items()),
        "the server ends your transactions that pause for longer, and with them their row locks; "
        "dblock switches these limits off for its own sessions, but not behind a pooler",
        "use a lease for long work",
    )


def vacuum(patient: Patient) -> Iterator[Finding]:
    ((off,),) = patient.ask(
        "SELECT current_setting('autovacuum') = 'off' OR EXISTS (SELECT FROM pg_class WHERE "
        "oid = to_regclass(%(lock)s)::oid AND reloptions && '{autovacuum_enabled=false,"
        "autovacuum_enabled=off}')",
        lock=patient.dialect.table("lock"),
    )
    if off:
        yield note(
            "autovacuum",
            "off",
            "every grant and renewal writes a row version, so the lock table grows and gets slow",
            f"{system('autovacuum', 'on')}\n"
            f"ALTER TABLE {patient.dialect.table('lock')} RESET (autovacuum_enabled);",
        )
    else:
        yield ok("autovacuum", "on")


def schemas(patient: Patient) -> Iterator[Finding]:
    """Check which other roles may create functions in a schema of the search_path."""
    rows = patient.ask(
        "SELECT n.nspname, CASE WHEN a.grantee = '0' THEN 'PUBLIC' "
        "ELSE pg_catalog.quote_ident(pg_get_userbyid(a.grantee)) END "
        "FROM pg_namespace AS n CROSS JOIN LATERAL aclexplode(n.nspacl) AS a "
        "WHERE n.nspname::text IN (SELECT pg_catalog.unnest(current_schemas(false))::text) "
        "AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner "
        "AND (a.grantee = '0' OR NOT pg_has_role(a.grantee, 'USAGE'::text)) ORDER BY 1, 2"
    )
    if not rows:
        yield ok("schemas", "no other role may create functions in the schemas of the search_path")
        return
    may = [(text(schema), text(role)) for schema, role in rows]
    yield note(
        "schemas",
        "; ".join(f"{role} may create functions in {schema}" for schema, role in may),
        "PostgreSQL takes the function whose types fit best, so your application's statements can "
        "run what they create there, with its rights; dblock's own statements do not",
        "\n".join(f'REVOKE CREATE ON SCHEMA "{schema}" FROM {role};' for schema, role in may),
    )


def row_security(patient: Patient) -> Iterator[Finding]:
    """Check whether row level security hides rows from this role."""
    hidden = []
    for table in patient.dialect.rights():
        ((hides,),) = patient.ask(
            "SELECT row_security_active(to_regclass(%(table)s)::oid) AND NOT EXISTS ("
            "SELECT FROM pg_policy WHERE polrelid = to_regclass(%(table)s)::oid "
            "AND polpermissive AND polcmd = '*' "
            "AND pg_catalog.pg_get_expr(polqual, polrelid) = 'true' "
            "AND EXISTS (SELECT FROM pg_catalog.unnest(polroles) AS role WHERE CASE "
            "WHEN role = 0::oid THEN true ELSE pg_catalog.pg_has_role(role, 'USAGE') END))",
            table=table,
        )
        if hides:
            hidden.append(table)
    if not hidden:
        yield ok("row security", "no row is hidden from this role")
        return
    role = role_of(patient)
    yield wrong(
        "row security",
        f"row level security hides rows of {', '.join(hidden)} from this role",
        "dblock takes the tables for missing or empty, and no lock can be taken",
        "\n".join(
            f"CREATE POLICY dblock ON {table} TO {role} USING (true) WITH CHECK (true);"
            for table in hidden
        ),
    )


def rights(patient: Patient) -> Iterator[Finding]:
    lacking = []
    for table, rights_ in patient.dialect.rights().items():
        for right in rights_.split(", "):
            rows = patient.ask(
                "SELECT has_table_privilege(to_regclass(%(table)s), %(right)s)",
                table=table,
                right=right,
            )
            if rows[0][0] is False:
                lacking.append(f"{right} on {table}")
    if lacking:
        yield wrong(
            "rights",
            f"this role lacks {', '.join(lacking)}",
            "statements that need these rights fail",
            "\n".join(patient.dialect.privileges(role_of(patient))),
        )
    else:
        yield ok("rights", "this role has all that dblock needs")


def functions(patient: Patient) -> Iterator[Finding]:
    """Check that the SQL functions, if there are any, are of this version."""
    found = patient.ask(patient.dialect.find_functions() or "SELECT WHERE false")
    if not found:
        return
    others = [text(name) for name, current in found if not current]
    if others:
        yield wrong(
            "functions",
            f"another version of dblock made {', '.join(others)}",
            "programs in other languages may not keep to the rules of this version",
            "dblock upgrade --functions",
        )
    else:
        yield ok("functions", "they are up to date")


CHECKS: tuple[Check, ...] = (
    server,
    pooler,
    isolation,
    access,
    encoding,
    durability,
    replication,
    collation,
    index,
    arrivals,
    functions,
    idle_timeouts,
    vacuum,
    schemas,
    row_security,
    rights,
)
