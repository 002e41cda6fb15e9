"""Mutants of who is told what, and of text that steers what shows it."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

SECRETS_TESTS = "tests/contract/test_secrets.py"
ROW_LOCKS = "tests/databases/test_mysql_row_locks.py"
PRIVATE = "tests/cli/test_private.py"
PROJECT = "tests/contrib/django/test_project.py"

SECRETS = (
    Mutant(
        "token-told-to-others",
        "nobody but the holder is given a token",
        "LockRow.told",
        "self.owner,",
        "f'{self.owner} {self.token}',",
        f"{SECRETS_TESTS}::test_nobody_else_is_given_a_token[threads-postgresql]",
        beyond=reasons.TEXT,
    ),
    Mutant(
        "token-in-a-drivers-log",
        "a token is in no log",
        "Query.__repr__",
        'return f"<Query {self.sql!r}>"',
        'return f"<Query {self.sql!r} {self.params!r}>"',
        f"{SECRETS_TESTS}::test_nobody_else_is_given_a_token[asyncio-postgresql]",
        beyond=reasons.TEXT,
    ),
    Mutant(
        "values-of-another-session-are-shown-on-mysql",
        "a statement of another session is shown without its values",
        "mysql.row.RowStatements.row_locks",
        "s.digest_text",
        "s.sql_text",
        f"{ROW_LOCKS}::test_whose_transaction_it_is[order]",
        beyond=reasons.TEXT,
    ),
    Mutant(
        "a-gap-is-a-row-lock-on-mysql",
        "a name is locked only if its own row is",
        "mysql.row.RowStatements.row_locks",
        "AND l.lock_mode NOT LIKE '%%,GAP%%'",
        "",
        f"{ROW_LOCKS}::test_a_lock_on_the_gap_before_a_name_is_none_on_the_name",
        beyond=reasons.TEXT,
    ),
    Mutant(
        "a-right-that-is-missing-is-asked-for-again",
        "the server refuses one statement, and dblock sends no other",
        "overview._row_locks",
        "exchange.dialect.hide_row_locks()",
        "pass",
        f"{ROW_LOCKS}::test_without_the_right_it_is_concluded",
        beyond=reasons.TEXT,
    ),
    Mutant(
        "a-silent-performance-schema-is-believed",
        "a row lock that the server does not show is concluded",
        "mysql.row._row_locks",
        "if any(not shown for shown, *_ in result.rows):",
        "if False:",
        f"{ROW_LOCKS}::test_without_the_performance_schema_it_is_concluded",
        beyond=reasons.SETTING,
    ),
    Mutant(
        "token-in-an-error",
        "a token is in no error",
        "BorrowedTransaction._told",
        "error.hide_parameters = True",
        "pass",
        f"{SECRETS_TESTS}::test_an_error_in_the_users_transaction_does_not_quote_it",
    ),
    Mutant(
        "token-in-the-admin",
        "who may look at locks in the admin cannot guess a token digit by digit",
        "Lock.owner",
        "owner: models.CharField[Any",
        "token = models.CharField(max_length=32, null=True)\nowner: models.CharField[Any",
        f"{PROJECT}::test_who_may_only_look_cannot_guess_a_token",
    ),
    Mutant(
        "default-file-behind-a-link",
        "the default database is nobody else's",
        "private._open",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)",
        f"{PRIVATE}::test_what_others_may_have_a_hand_in_is_refused[linked]",
    ),
    Mutant(
        "default-file-as-it-was-made",
        "the default database is for its user alone",
        "private._make",
        "if found.st_mode & OTHERS_USE:",
        "if False:",
        f"{PRIVATE}::test_a_readable_file_is_made_private",
    ),
    Mutant(
        "url-file-for-everybody",
        "a file with a password in it is not for others",
        "private.NOT_FOR_OTHERS",
        "NOT_FOR_OTHERS = 0o027",
        "NOT_FOR_OTHERS = 0o022",
        f"{PRIVATE}::test_a_wrong_file",
    ),
    Mutant(
        "label-raw-in-an-error",
        "a label steers no terminal",
        "LockState.describe",
        'holder = printable(self.owner or "an unnamed holder")',
        'holder = self.owner or "an unnamed holder"',
        f"{SECRETS_TESTS}::test_nothing_in_a_label_is_raw_where_people_read_it[threads-sqlite]",
        beyond=reasons.TEXT,
    ),
    Mutant(
        "label-raw-in-a-cycle",
        "a label forges no line of a log",
        "Waiter._judge",
        "is held by {printable(holder.owner)}",
        "is held by {holder.owner}",
        f"{SECRETS_TESTS}::test_a_label_in_a_cycle[threads-postgresql]",
        beyond=reasons.TEXT,
    ),
)
