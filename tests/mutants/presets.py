"""Mutants of what is done about settings that a role, a database or a server presets."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CONTRACT, PRESETS = "tests/contract", "tests/test_presets.py"
MEANING = "no setting changes what dblock's statements mean"

PRESET = (
    Mutant(
        "moments-as-text",
        MEANING,
        "postgresql.sender.Sender.send",
        "send_query_params(sql, values, types, formats, _BINARY)",
        "send_query_params(sql, values, types, formats, 0)",
        f"{PRESETS}::test_moments_and_numbers_behind_a_pooler",
    ),
    Mutant(
        "another-encoding-is-kept",
        "names are exact",
        "adapter._settings",
        '"client_encoding": "UTF8",',
        "",
        f"{PRESETS}::test_a_lent_engine_with_another_encoding",
    ),
    *(
        Mutant(
            f"{setting.split(' ')[0].replace('_', '-')}-as-the-server-has-it",
            MEANING,
            "mariadb.adapter._SETTINGS",
            setting,
            "",
            f"{CONTRACT}/test_lease.py::test_list_and_show[threads-hostile mariadb]",
        )
        for setting in (
            "completion_type = 'NO_CHAIN', ",
            "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', ",
            "sql_select_limit = 18446744073709551615, ",
        )
    ),
    Mutant(
        "a-division-as-exact-as-the-server-has-it",
        MEANING,
        "mariadb.fragments.REMAINING",
        "* 1e-6",
        "/ 1000000",
        f"{CONTRACT}/test_lease.py"
        "::test_not_acquired_says_who_and_until_when[threads-hostile mariadb]",
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
    ),
)
