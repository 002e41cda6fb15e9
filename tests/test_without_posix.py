"""Where processes cannot fork, as on Windows: the library works, and the shell says what cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import NewDatabase
from tests.test_docs import ROOT

FILES = (
    *("contract/test_lease.py", "contract/test_row.py", "contract/test_counter.py"),
    *("contract/test_shared.py", "contract/test_shared_waiting.py"),
    *("contract/test_shared_expiry.py", "contract/test_semaphore_limit.py"),
    *("contract/test_semaphore.py", "contract/test_election.py"),
    *("contract/test_once.py", "contract/test_guard.py", "contract/test_cron.py"),
    *("contrib/test_migration_lock.py", "aio/test_tasks.py", "contrib/test_idempotency.py"),
)


def hidden(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("file", FILES)
def test_on_sqlite(file: str) -> None:
    options = ["-p", "tests.without_posix", "-p", "no:cacheprovider", "-n0", "-q", "-k", "sqlite"]
    done = hidden("-m", "pytest", *options, f"tests/{file}")
    assert done.returncode == 0, done.stdout + done.stderr


def dblock(*arguments: str) -> tuple[int, str, str]:
    script = (
        f"import tests.without_posix; from dblock.__main__ import main; main({list(arguments)!r})"
    )
    done = hidden("-c", script)
    return done.returncode, done.stdout, done.stderr


def test_the_command_line(new_database: NewDatabase, tmp_path: Path) -> None:
    url = new_database("sqlite", migrated=True).url
    assert dblock("--url", url, "list")[0] == 0
    code, out, err = dblock("run", "nightly", "--nonblock", "--url", url, "--", "true")
    assert (code, out) == (78, "")
    assert "dblock run needs a POSIX system" in err
    code, out, err = dblock("list")
    assert (code, out) == (78, "")
    assert "name one with --url or DBLOCK_URL" in err
    file = tmp_path / "url"
    file.write_text(url)
    code, out, err = dblock("list", "--url-file", str(file))
    assert (code, out) == (64, "")
    assert "use DBLOCK_URL" in err
