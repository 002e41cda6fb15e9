"""Mutants of the migration lock, of units of work that are run again, and of the frameworks'."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FASTAPI = "tests/contrib/test_idempotency_fastapi.py"

LOCKING, IN_DJANGO = "tests/contrib/test_migration_lock.py", "tests/contrib/django/test_locks.py"
COUNTER = "tests/contrib/django/test_counter.py"
PROJECT = "tests/contrib/django/test_project.py"
FLASK = "tests/contrib/test_flask_migrate.py"

STRANGERS = "tests/contrib/test_migration_strangers.py"
ONE_MIGRATES = "one migrates at a time, whoever has the lock and may not"

CONTRIB = (
    Mutant(
        "positive-fields-below-zero",
        "a counter never takes what a model's field cannot be without, floor or not",
        "FieldTable.kind",
        "return replace(made, least=least, most=most)",
        "return made",
        f"{COUNTER}::test_a_positive_field_has_the_floor_zero[postgresql]",
    ),
    Mutant(
        "a-lost-commit-of-a-counters",
        "a commit whose reply is lost is told as unknown",
        "ModelCounter._run",
        "error if begun and not done else block.failure(error)",
        "error",
        f"{COUNTER}::test_a_commit_whose_reply_is_lost",
    ),
    Mutant(
        "migrations-wait-for-strangers",
        "who may only connect holds up no migration",
        "MigrationMutex.__init__",
        "(a.pid IS NULL OR a.usename = session_user OR {_COULD})",
        "true",
        f"{STRANGERS}::test_migrators_exclude_each_other_all_the_same",
    ),
    Mutant(
        "who-passed-by-is-not-seen",
        ONE_MIGRATES,
        "MigrationMutex.take",
        "pg_try_advisory_xact_lock({self._number}) THEN {alone}",
        "pg_try_advisory_xact_lock({self._number}) THEN true",
        f"{STRANGERS}::test_a_stranger_comes_and_goes",
    ),
    Mutant(
        "looks-before-it-passes-by",
        ONE_MIGRATES,
        "MigrationMutex.take",
        "{beside}) AND {alone}",
        "{beside})",
        f"{STRANGERS}::test_one_at_a_time_however_the_stranger_comes_and_goes",
    ),
    Mutant(
        "only-owners-migrate",
        ONE_MIGRATES,
        "MigrationMutex.__init__",
        "a.usename = session_user OR",
        "",
        f"{STRANGERS}::test_a_migrator_without_a_right_is_waited_for_by_its_like",
    ),
    Mutant(
        "nobody-becomes-an-owner",
        ONE_MIGRATES,
        "migrations._COULD",
        "pg_has_role(a.usesysid, r.oid, 'MEMBER')",
        "pg_has_role(a.usesysid, r.oid, 'USAGE')",
        f"{STRANGERS}::test_whoever_could_migrate_is_waited_for",
    ),
    Mutant(
        "migration-lock-with-a-snapshot",
        "nothing waits for the migration lock's own transaction",
        "postgresql.migrations.MigrationStatements.migration_mutex",
        '"BEGIN ISOLATION LEVEL READ COMMITTED"',
        '"BEGIN"',
        f"{LOCKING}::test_its_transaction_may_be_idle_for_as_long_as_it_takes",
    ),
    Mutant(
        "migration-lock-idle-too-long",
        "the migration lock lasts as long as the migration",
        "postgresql.migrations.MigrationStatements.migration_mutex",
        "_ENDLESS,",
        "",
        f"{LOCKING}::test_its_transaction_may_be_idle_for_as_long_as_it_takes",
    ),
    Mutant(
        "migration-lock-before-the-commit",
        "the migration lock lasts until others can see the migration",
        "migration_lock.migration_lock",
        "if connection.in_transaction():",
        "if False:",
        f"{LOCKING}::test_left_in_a_transaction_it_lasts_until_that_is_over[postgresql]",
    ),
    Mutant(
        "migration-lock-at-the-head",
        "a database at its head is not locked",
        "migration_lock._wait",
        "while needed is None or own is None or needed(own):",
        "while True:",
        f"{LOCKING}::test_nothing_is_locked_at_the_head[postgresql]",
    ),
    Mutant(
        "retry-without-deadlocks",
        "a unit of work that a deadlock undid is run again",
        "retrying._AGAIN",
        "frozenset({Fault.DEADLOCK, Fault.SERIALIZATION, Fault.ALTERED})",
        "frozenset({Fault.SERIALIZATION, Fault.ALTERED})",
        "tests/contrib/test_retrying.py::test_a_deadlock[postgresql]",
    ),
    Mutant(
        "django-lease-before-the-commit",
        "a lease lasts until others can see what was done under it",
        "DjangoLease.leave",
        "if wrapper is None or (hold := self._holds.get()).count > 1:",
        "if hold := self._holds.get():",
        f"{IN_DJANGO}::test_a_lease_is_given_back_after_the_commit[postgresql]",
    ),
    Mutant(
        "django-lease-after-a-rollback",
        "a rollback gives back what the commit would have",
        "_Later.__del__",
        "def __del__(self)",
        "def never(self)",
        f"{IN_DJANGO}::test_a_lease_is_given_back_after_a_rollback[postgresql]",
    ),
    Mutant(
        "django-stays-at-its-first-tables",
        "Django's migrations bring the tables to the newest version",
        "Tables.database_forwards",
        "self._version(connection) < self._brings_to",
        "not self._version(connection)",
        f"{PROJECT}::test_the_same_tables_as_alembics[sqlite]",
    ),
    Mutant(
        "loss-told-twice",
        "a loss is an event once",
        "Lease._lose",
        "if hold.lose(loss):",
        "hold.lose(loss)\nif True:",
        "tests/contract/test_events.py::test_a_loss_is_told_once[threads-sqlite]",
    ),
    Mutant(
        "loss-without-its-reason",
        "telemetry counts losses by their reason",
        "_Recorder.record",
        "str(event.error.reason)",
        '"lost"',
        "tests/contrib/test_opentelemetry.py::test_renewals_and_losses",
    ),
    Mutant(
        "django-owns-all-tables",
        "tables that Alembic made are Alembic's",
        "Tables._is_ours",
        'and not self._has(connection, "version")',
        "",
        f"{PROJECT}::test_tables_that_alembic_made_are_left_alone[sqlite]",
    ),
    Mutant(
        "django-migrate-ends-unlocked",
        "two that migrate do not meet in Django's work after the last migration",
        "dblock.migrate",
        'locks.dialect, "migrations") as check:',
        'locks.dialect, "migrations", needed=lambda own: False) as check:',
        f"{PROJECT}::test_migrate_is_alone_to_its_end[postgresql]",
    ),
    Mutant(
        "django-admin-for-everybody",
        "only who may takes a lock from its holder",
        "LockAdmin.has_force_release_permission",
        'bool(user.has_perm("dblock.force_release_lock"))',
        "True",
        f"{PROJECT}::test_the_admin",
    ),
    Mutant(
        "flask-drops-our-tables",
        "flask db migrate leaves dblock's tables alone, whichever is set up first",
        "DBLock.init_app",
        "appcontext_pushed.connect(state.meet_migrate, app)",
        "pass",
        f"{FLASK}::test_autogenerate_leaves_our_tables_alone[before]",
    ),
    Mutant(
        "flask-forgets-the-users-filter",
        "a user's own include_name is asked too",
        "State.keep_tables",
        "leave_ours(chosen, known=known",
        "leave_ours(None, known=known",
        f"{FLASK}::test_autogenerate_asks_the_users_own_filters",
    ),
    Mutant(
        "flask-without-teardown",
        "what a request acquired ends with it",
        "DBLock.init_app",
        "app.teardown_appcontext(_release)",
        "",
        "tests/contrib/test_flask.py::test_a_request",
    ),
    Mutant(
        "a-replay-has-the-routes-own-status",
        "a repeated request gets the same response",
        "starlette._replayed",
        "beside.status_code = answer.status",
        "pass",
        f"{FASTAPI}::test_usual_routes",
    ),
    Mutant(
        "files-of-a-form-are-not-compared",
        "a key that comes with another request is refused",
        "starlette._said",
        "digest.update(part)",
        "pass",
        f"{FASTAPI}::test_usual_routes",
    ),
)
