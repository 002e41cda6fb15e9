"""Several databases on the command line are a quorum."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dblock import Locks, Quorum
from dblock.__main__ import app
from dblock.cli import completion
from dblock.cli.options import AT_A_QUORUM
from dblock.schema import upgrade
from tests.cli.conftest import Here, Program
from tests.cli.test_options import NEEDED, line
from tests.conftest import NewDatabase
from tests.patience import SECONDS
from tests.quorum.conftest import PATIENT, held_at, three_files
from tests.support import eventually

#: The commands with a database that a quorum does not have.
REFUSED = [
    name
    for name, command in app.commands.items()
    if name not in AT_A_QUORUM and any(param.name == "url" for param in command.params)
]


@pytest.fixture
def urls(tmp_path: Path) -> list[str]:
    return three_files(tmp_path)


@pytest.fixture
def quorum(urls: list[str], here: Here, monkeypatch: pytest.MonkeyPatch) -> Quorum:
    """A quorum, which the environment names too."""
    monkeypatch.setenv("DBLOCK_URL", " ".join(urls))
    return Quorum(urls, timeouts=PATIENT)


def given(urls: list[str]) -> list[str]:
    return [word for url in urls for word in ("--url", url)]


def test_run_holds_the_name_at_a_majority(here: Here, urls: list[str]) -> None:
    show = ["sh", "-c", "echo $DBLOCK_NAME $DBLOCK_FENCE"]
    code, out, err = here("run", "a", "-n", "-v", *given(urls), "--", *show)
    assert (code, out) == (0, "a 1\n"), err
    assert f"locks are in a majority of {' + '.join(urls)}" in err
    assert "acquired 'a', fence 1" in err
    assert "released 'a'" in err
    assert here("run", "a", "-n", *given(urls[::-1]), "--", *show)[1] == "a 2\n"
    with Quorum(urls, timeouts=PATIENT) as quorum:
        assert not quorum.show("a").held


@pytest.mark.parametrize("mixed", [False, True])
def test_run_is_refused_while_another_holds(
    program: Program, new_database: NewDatabase, urls: list[str], mixed: bool
) -> None:
    if mixed:
        kinds = ("postgresql", "mariadb")
        urls = [*(new_database(kind, migrated=True).url for kind in kinds), urls[0]]
    holder = program.holder("a", *given(urls))
    with Quorum(urls, timeouts=PATIENT) as quorum:
        assert str(holder.pid) in str(quorum.show("a").owner)
    code, out, err = program("run", "a", "-n", *given(urls), "--", "echo", "ran")
    assert (code, out) == (75, "")
    assert f"pid {holder.pid}" in err
    waiting = program.start("run", "a", "--wait", str(SECONDS), *given(urls), "--", "echo", "ran")
    assert holder.finish() == (0, "", "")
    assert waiting.finish() == (0, "ran\n", "")


def test_run_ends_its_command_when_a_majority_lost_the_name(
    program: Program, urls: list[str]
) -> None:
    holder = program.holder("a", "--ttl", "3", *given(urls))
    eventually(lambda: held_at(urls, "a") == 3)
    for url in urls[:2]:
        with Locks(url) as locks:
            assert locks.release("a", force=True)
    code, _, err = holder.end()
    assert code == 79
    assert "lost the lock, ending the command" in err


def test_list_show_and_release(here: Here, quorum: Quorum, urls: list[str]) -> None:
    with quorum:
        lease = quorum.lease("a", ttl=60)
        assert lease.acquire()
        eventually(lambda: held_at(urls, "a") == 3)
        assert here("show", "a")[1].splitlines()[:2] == ["name     a", "state    held"]
        (listed,) = json.loads(here("list", "--json")[1])
        assert (listed["name"], listed["fence"]) == ("a", lease.fence)
        code, _, err = here("release", "a", "--force", "--fence", "1")
        assert (code, "--fence is for one database" in err) == (64, True)
        code, out, _ = here("release", "a", "--force")
        assert (code, out.startswith("released 'a': it was held by")) == (0, True)
        assert here("release", "a", "--force")[0] == 1
        assert here("show", "a")[0] == 1
        assert here("list")[2].endswith("dblock: nobody holds a lock\n")


def test_what_a_quorum_does_not_have_is_refused_without_a_database(
    here: Here, tmp_path: Path
) -> None:
    urls = [f"sqlite:////nowhere/{name}.db" for name in "abc"]
    for command in REFUSED:
        code, out, err = here(*line(command, *given(urls)))
        assert (code, out) == (64, ""), (command, err)
        assert f"dblock {command} takes one database" in err
        assert f"a quorum, which has {', '.join(AT_A_QUORUM)}" in err
    assert set(REFUSED) > {"upgrade", "serve", "rate", "prune", "metrics"}
    assert set(REFUSED) | set(AT_A_QUORUM) == set(app.commands) - {"token"}
    for options in (["--slots=2"], ["--shared"], ["--at-least=5"], ["--once-per=day"]):
        code, out, err = here(*line("run", *options, *given(urls)))
        assert (code, out) == (64, "")
        assert f"{options[0].partition('=')[0]} is for one database" in err
    assert NEEDED["release"] == ["a", "--force"]
    assert not (tmp_path / "state").exists()


def test_a_wrong_list_is_a_usage_error(here: Here, urls: list[str]) -> None:
    for wrong, said in (
        (urls[:2], "an odd number of databases, 3 or more, not 2"),
        ([*urls, f"{urls[0]}x"], "an odd number of databases, 3 or more, not 4"),
        ([urls[0], urls[1], urls[0]], f"{urls[0]} is given twice"),
        ([urls[0], urls[1], "nope"], "not a database URL"),
    ):
        code, out, err = here("list", *given(wrong))
        assert (code, out, err.count("\n")) == (64, "", 1), err
        assert "--url: " in err
        assert said in err


def test_the_same_tables_and_another_quorum_are_usage_errors(
    here: Here, urls: list[str], tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "a.db")
    for command in ("list", "doctor"):
        code, _, err = here(command, *given([*urls[:2], f"sqlite:///{link}"]))
        assert (code, "are the same set of tables" in err) == (64, True), err
    assert here("run", "a", *given(urls), "--", "true")[0] == 0
    other = f"sqlite:///{tmp_path}/other.db"
    upgrade(other)
    for asked in (["list"], ["show", "a"], ["release", "a", "--force"], ["rejoin", other]):
        code, _, err = here(*asked, *given([*urls[:2], other]))
        assert (code, "are members of another quorum" in err) == (64, True), err


def test_a_file_has_a_url_a_line(here: Here, urls: list[str], tmp_path: Path) -> None:
    file = tmp_path / "urls"
    file.write_text("\n".join(urls))
    file.chmod(0o600)
    assert here("run", "a", "--url-file", str(file), "--", "true")[0] == 0
    assert "fence    1" in here("show", "a", *given(urls))[1]
    file.write_text("\n".join(urls[:2]))
    assert here("list", "--url-file", str(file))[0] == 64


def test_a_path_with_a_space_is_one_url(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBLOCK_URL", f"sqlite:///{tmp_path}/my locks.db")
    assert here("upgrade")[0] == 0
    assert (tmp_path / "my locks.db").exists()


def test_several_may_be_said_first(here: Here, urls: list[str]) -> None:
    assert here(*given(urls), "run", "a", "--", "true")[0] == 0
    assert "fence    1" in here(*given(urls), "show", "a")[1]
    assert "fence    1" in here("--url", "nope", "show", "a", *given(urls))[1]
    assert here("--url", urls[0], "run", "b", "--", "echo", "--url", urls[1])[0] == 0


def test_doctor_tells_of_each_member(here: Here, quorum: Quorum, urls: list[str]) -> None:
    def votes() -> list[tuple[str, str, str]]:
        found = json.loads(here("doctor", "--json")[1])
        assert {each["member"] for each in found} == set(urls)
        shown = [each for each in found if each["what"] == "vote"]
        return [(each["member"], each["level"], each["found"]) for each in shown]

    assert [level for _, level, _ in votes()] == ["note"] * 3  # nobody has used it yet
    with quorum, quorum.lease("a"):
        pass
    assert votes() == [(url, "ok", "it votes") for url in urls]
    assert "ok\tvote\tit votes\t\t" in here("doctor")[1]
    Path(urls[0].removeprefix("sqlite:///")).unlink()
    code, out, _ = here("doctor", "--quiet")
    assert code == 1
    (away,) = [row.split("\t") for row in out.splitlines() if "\tvote\t" in row]
    assert away[:3] == [urls[0], "wrong", "vote"]
    assert away[3].startswith("it cannot be asked: ")


def test_names_are_completed(quorum: Quorum, urls: list[str], tmp_path: Path) -> None:
    def names(*urls: str) -> list[str]:
        found: list[str] = []
        place = {"schema": None, "prefix": "dblock_", "trust_server": False, "url_file": None}
        completion._look(place | {"url": urls}, "re", found)
        return found

    with quorum, quorum.lease("report", ttl=60), quorum.lease("sales", ttl=60):
        eventually(lambda: names(*urls) == ["report"])  # a busy machine may take too long
    missing = tmp_path / "missing.db"
    assert names(*urls[:2], f"sqlite:///{missing}") == []
    assert not missing.exists()


def test_rejoin(here: Here, quorum: Quorum, urls: list[str]) -> None:
    with quorum, quorum.lease("a", ttl=60):
        pass
    code, out, _ = here("rejoin", urls[1])
    assert (code, out) == (
        0,
        f"{urls[1]} grants nothing for 60.0 s, and then votes in the quorum again\n",
    )
    with Quorum(urls, timeouts=PATIENT) as other:
        assert [each.state for each in other.check()] == ["votes", "pauses", "votes"]
    assert "it pauses after a restart" in here("doctor")[1]
    code, _, err = here("rejoin", "elsewhere")
    assert (code, f"MEMBER is none of the databases: {', '.join(urls)}" in err) == (64, True)
    code, _, err = here("rejoin", urls[1], "--url", urls[1])
    assert (code, "this is for a quorum" in err) == (64, True)
