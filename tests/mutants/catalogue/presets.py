"""Mutants of what is done about settings that a role, a database or a server presets."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

CONTRACT, PRESETS = "tests/contract", "tests/databases/test_presets.py"
MEANING = "no setting changes what dblock's statements mean"
HOSTILE_SERVER = f"{CONTRACT}/test_lease.py::test_list_and_show[threads-hostile mariadb]"

PRESET = (
    Mutant(
        "moments-as-text",
        MEANING,
        "postgresql.sender.Sender.send",
        "send_query_params(sql, values, types, formats, _BINARY)",
        "send_query_params(sql, values, types, formats, 0)",
        f"{PRESETS}::test_moments_and_numbers_behind_a_pooler",
        beyond=reasons.SETTING,
    ),
    Mutant(
        "subqueries-as-the-server-rewrites-them-on-mysql",
        "a row lock locks the rows of one name",
        "mariadb.sessions.MYSQL_SETTINGS",
        "subquery_to_derived=off,hypergraph_optimizer=off",
        "hypergraph_optimizer=off",
        "tests/databases/test_mysql_settings.py"
        "::test_a_rewritten_subquery_locks_the_row_of_one_name",
        beyond=reasons.SETTING,
    ),
    Mutant(
        "plans-of-the-hypergraph-optimizer-on-mysql",
        "a renewal locks the rows of its own names",
        "mariadb.sessions.MYSQL_SETTINGS",
        "subquery_to_derived=off,hypergraph_optimizer=off",
        "subquery_to_derived=off",
        "tests/databases/test_mysql_settings.py::test_a_renewal_locks_the_rows_of_its_own_names",
        beyond=reasons.SETTING,
    ),
    Mutant(
        "subqueries-as-a-users-server-rewrites-them-on-mysql",
        "a refused row lock locks nothing in another database",
        "mysql.row.RowStatements.lock_row",
        "[_AS_WRITTEN] if command.borrowed else []",
        "[]",
        "tests/contract/test_whereabouts.py::test_nothing_is_locked_in_another_database[threads-mysql-row]",
        beyond=reasons.SETTING,
    ),
    Mutant(
        "another-encoding-is-kept",
        "names are exact",
        "adapter._settings",
        '"client_encoding": "UTF8",',
        "",
        f"{PRESETS}::test_a_lent_engine_with_another_encoding",
        beyond=reasons.ENCODING,
    ),
    Mutant(
        "completion-type-as-the-server-has-it",
        MEANING,
        "mariadb.sessions.SETTINGS",
        "completion_type = 'NO_CHAIN', ",
        "",
        HOSTILE_SERVER,
        beyond=reasons.SETTING,
    ),
    Mutant(
        "sql-mode-as-the-server-has-it",
        MEANING,
        "mariadb.sessions.SETTINGS",
        "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', ",
        "",
        HOSTILE_SERVER,
        beyond=reasons.SETTING,
    ),
    Mutant(
        "sql-select-limit-as-the-server-has-it",
        MEANING,
        "mariadb.sessions.SETTINGS",
        "sql_select_limit = 18446744073709551615, ",
        "",
        HOSTILE_SERVER,
        beyond=reasons.SETTING,
    ),
    Mutant(
        "a-division-as-exact-as-the-server-has-it",
        MEANING,
        "mariadb.fragments.REMAINING",
        "* 1e-6",
        "/ 1000000",
        f"{CONTRACT}/test_lease.py"
        "::test_not_acquired_says_who_and_until_when[threads-hostile mariadb]",
        beyond=reasons.SETTING,
    ),
    Mutant(
        "a-name-quoted-by-the-driver",
        "a name is no part of a statement",
        "mariadb.fragments",
        (
            '"UNHEX(%(name)s)"\n'
            "\n"
            "\n"
            "def in_hex(name: str) -> dict[str, str]:\n"
            '    return {"name": name.encode().hex()}'
        ),
        (
            '"%(name)s"\n'
            "\n"
            "\n"
            "def in_hex(name: str) -> dict[str, bytes]:\n"
            '    return {"name": name.encode()}'
        ),
        f"{CONTRACT}/test_names.py::test_awkward_names[asyncio-hostile mariadb]",
        beyond=reasons.ENCODING,
    ),
)
