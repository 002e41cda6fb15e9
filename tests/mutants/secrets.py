"""Mutants of who is told what, and of text that steers what shows it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

STATE = "dblock/protocol/state.py"
DJANGO, SECRETS_TESTS = "dblock/contrib/django", "tests/contract/test_secrets.py"
PRIVATE = "tests/cli/test_private.py"
PROJECT = "tests/contrib/django/test_project.py"

SECRETS = (
    Mutant(
        "token-told-to-others",
        "nobody but the holder is given a token",
        STATE,
        "            self.fence,\n            self.owner,\n",
        "            self.fence,\n            f'{self.owner} {self.token}',\n",
        f"{SECRETS_TESTS}::test_nobody_else_is_given_a_token[threads-postgresql]",
    ),
    Mutant(
        "token-in-a-drivers-log",
        "a token is in no log",
        "dblock/protocol/steps.py",
        'return f"<Query {self.sql!r}>"',
        'return f"<Query {self.sql!r} {self.params!r}>"',
        f"{SECRETS_TESTS}::test_nobody_else_is_given_a_token[asyncio-sqlite]",
    ),
    Mutant(
        "token-in-an-error",
        "a token is in no error",
        "dblock/borrowed.py",
        "error.hide_parameters = True",
        "pass",
        f"{SECRETS_TESTS}::test_an_error_in_the_users_transaction_does_not_quote_it",
    ),
    Mutant(
        "token-in-the-admin",
        "who may look at locks in the admin cannot guess a token digit by digit",
        f"{DJANGO}/models.py",
        "    owner: models.CharField[Any",
        "    token = models.CharField(max_length=32, null=True)\n    owner: models.CharField[Any",
        f"{PROJECT}::test_who_may_only_look_cannot_guess_a_token",
    ),
    Mutant(
        "default-file-behind-a-link",
        "the default database is nobody else's",
        "dblock/cli/private.py",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)",
        f"{PRIVATE}::test_what_others_may_have_a_hand_in_is_refused[linked]",
    ),
    Mutant(
        "default-file-as-it-was-made",
        "the default database is for its user alone",
        "dblock/cli/private.py",
        "if found.st_mode & OTHERS_USE:",
        "if False:",
        f"{PRIVATE}::test_a_readable_file_is_made_private",
    ),
    Mutant(
        "url-file-for-everybody",
        "a file with a password in it is not for others",
        "dblock/cli/private.py",
        "NOT_FOR_OTHERS = 0o027",
        "NOT_FOR_OTHERS = 0o022",
        f"{PRIVATE}::test_a_wrong_file",
    ),
    Mutant(
        "label-raw-in-an-error",
        "a label steers no terminal",
        STATE,
        'holder = printable(self.owner or "an unnamed holder")',
        'holder = self.owner or "an unnamed holder"',
        f"{SECRETS_TESTS}::test_nothing_in_a_label_is_raw_where_people_read_it[threads-sqlite]",
    ),
    Mutant(
        "label-raw-in-a-cycle",
        "a label forges no line of a log",
        "dblock/protocol/registering.py",
        "is held by {printable(holder.owner)}",
        "is held by {holder.owner}",
        f"{SECRETS_TESTS}::test_a_label_in_a_cycle[threads-postgresql]",
    ),
)
