"""The default file is its user's alone, and so is a file with a URL in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import PYTHON, Here, Program
from tests.conftest import Database

SHOW = "import os; print(*sorted(k for k in os.environ if k.startswith('DBLOCK_')))"
SECRET = "app:swordfish@db"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The directory of the default file; `here` and `program` have it."""
    return tmp_path / "state" / "dblock"


# --- the default file


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_what_is_made_is_private_whatever_the_umask(here: Here, state: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert here("list")[0] == 0
    finally:
        os.umask(before)
    assert [mode(path) for path in (state.parent, state)] == [0o700] * 2
    assert {mode(path) for path in state.iterdir()} == {0o600}
    assert here("run", "a", "--", "true")[0] == 0


def made(state: Path) -> None:
    state.mkdir(mode=0o700, parents=True)


def linked(state: Path) -> None:
    elsewhere = state.parent.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    state.parent.mkdir()
    state.symlink_to(elsewhere)


def world_writable(state: Path) -> None:
    made(state)
    state.chmod(0o777)


def group_writable(state: Path) -> None:
    made(state)
    state.chmod(0o770)


def linked_file(state: Path) -> None:
    made(state)
    (state.parent / "other.db").touch()
    (state / "locks.db").symlink_to(state.parent / "other.db")


def linked_to_nothing(state: Path) -> None:
    made(state)
    (state / "locks.db").symlink_to(state.parent / "other.db")


def no_file(state: Path) -> None:
    made(state)
    (state / "locks.db").mkdir()


WRONG: dict[Callable[[Path], None], str] = {
    linked: "is a symbolic link",
    world_writable: "can be written to by others",
    group_writable: "chmod 700",
    linked_file: "locks.db is a symbolic link",
    linked_to_nothing: "locks.db is a symbolic link",
    no_file: "not a file",
}


@pytest.mark.parametrize("prepare", WRONG, ids=lambda prepare: prepare.__name__)
def test_what_others_may_have_a_hand_in_is_refused(
    here: Here, state: Path, prepare: Callable[[Path], None]
) -> None:
    prepare(state)
    for command in (["run", "a", "--", "echo", "ran"], ["list"], ["upgrade"]):
        code, out, err = here(*command)
        assert (code, out) == (78, "")
        assert WRONG[prepare] in err
        assert str(state) in err
        assert "DBLOCK_URL" in err
        assert err.count("\n") == 1
    assert not (state.parent.parent / "elsewhere" / "locks.db").exists()
    other = state.parent / "other.db"
    assert not other.exists() or not other.read_bytes()


def test_what_belongs_to_another_is_refused(
    here: Here, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("list")[0] == 0
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    code, out, err = here("list")
    assert (code, out) == (78, "")
    assert f"{state} belongs to the user {me}" in err

    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: owned_by(real(fd), me + 1))
    assert f"locks.db belongs to the user {me}" in here("list")[2]


def owned_by(found: os.stat_result, uid: int) -> os.stat_result:
    return os.stat_result((*found[:4], uid, *found[5:]))


def test_a_readable_file_is_made_private(here: Here, state: Path) -> None:
    """As SQLite made it with a usual umask."""
    assert here("list")[0] == 0
    (state / "locks.db").chmod(0o664)
    state.chmod(0o755)
    assert here("list")[0] == 0
    assert mode(state / "locks.db") == 0o600


# --- a file with the URL


def url_file(tmp_path: Path, text: str, mode: int = 0o600) -> str:
    file = tmp_path / "url"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_with_a_url_in_a_file_the_command_is_told_none(
    program: Program, db: Database, tmp_path: Path
) -> None:
    file = url_file(tmp_path, f"{db.url}\n", 0o640)
    program.environment["DBLOCK_URL_FILE"] = file
    code, out, err = program("run", "nightly", "--", *PYTHON, SHOW)
    assert (code, err) == (0, "")
    assert out.split() == ["DBLOCK_FENCE", "DBLOCK_NAME", "DBLOCK_TOKEN", "DBLOCK_URL_FILE"]
    assert "fence    1" in program("show", "nightly", "--url", db.url)[1]


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (f"postgresql://{SECRET}/app", 0o644, "chmod 600"),
        (f"postgresql://{SECRET}/app", 0o660, "chmod 600"),
        (f"postgresql://{SECRET}/app", 0o602, "chmod 600"),
        (f"{SECRET}\n{SECRET}\n", 0o600, "an odd number of databases"),
        (f"{SECRET}\n" * 3, 0o600, "not a database URL"),
        (f"{SECRET}\n\n{SECRET}\n", 0o600, "one line"),
        ("\n", 0o600, "one line"),
        (SECRET, 0o600, "not a database URL"),
    ],
)
def test_a_wrong_file(here: Here, tmp_path: Path, text: str, mode: int, says: str) -> None:
    code, out, err = here("list", "--url-file", url_file(tmp_path, text, mode))
    assert (code, out) == (64, "")
    assert says in err
    assert "swordfish" not in err
    assert err.count("\n") == 1


def test_no_file_that_can_be_read(here: Here, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    for path, says in (("none", "No such file"), (".", "directory"), ("bytes", "not a text")):
        code, out, err = here("list", "--url-file", str(tmp_path / path))
        assert (code, out) == (64, "")
        assert says in err


def test_a_file_of_another_user(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = url_file(tmp_path, "sqlite:////no/where.db")
    os.chown(file, os.geteuid() or 1, -1)  # root's are taken from anybody
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    code, _, err = here("list", "--url-file", file)
    assert code == 64
    assert "belongs to the user" in err


def test_which_counts(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line, before the environment; two of one kind are a mistake."""
    url, file = f"sqlite:///{tmp_path}/a.db", url_file(tmp_path, f"sqlite:///{tmp_path}/b.db")
    assert here("upgrade", "--url", url, "--url-file", file)[0] == 64
    monkeypatch.setenv("DBLOCK_URL", url)
    assert here("upgrade", "--url-file", file)[0] == 0
    assert [path.name for path in tmp_path.glob("*.db")] == ["b.db"]
    monkeypatch.setenv("DBLOCK_URL_FILE", file)
    code, _, err = here("upgrade")
    assert (code, err.count("give either --url or --url-file")) == (64, 1)
    assert here("upgrade", "--url", url)[0] == 0
    assert (tmp_path / "a.db").exists()
