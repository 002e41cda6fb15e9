"""What the options take, and how an error names them: as they are typed in a shell."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dblock import (
    DBLockError,
    Locks,
    Misconfigured,
    OutcomeUnknown,
    Unavailable,
    Unsupported,
)
from dblock.__main__ import app
from dblock.cli.durations import HELP, duration
from dblock.cli.embedded import Given, commands
from dblock.cli.options import in_shell
from tests.cli.conftest import Here, Program
from tests.conftest import Database

DURATIONS = ["", "soon", "-1", "1y", "30s1m", "1m1m", "1m30", "1 m", "inf", "nan", "1e3", "9" * 99]
WRONG: dict[str, list[str]] = {
    "--ttl": [*DURATIONS, "0", "0.01", "50ms", "367d"],
    "--wait": DURATIONS,
    "--slots": ["", "0", "1001", "-1", "1.5", "many"],
    "--at-least": [*DURATIONS, "367d"],
    "--at-most": [*DURATIONS[:-1], "0", "50ms"],
    "--once-per": ["", "year", "1d", "at_least"],
    "--once-for": ["", "day", "x" * 256, "a\0", "a\udcff"],
    "--per": [*DURATIONS, "0", "40000d"],
    "--burst": ["", "0", "-1", "1.5", "many"],
    "--cost": ["", "0", "-1", "1.5", "many"],
    "--tz": ["", "Nowhere/City", "../etc/passwd"],
    "--conflict-exit-code": ["", "-1", "256", "x"],
    "--done-exit-code": ["", "-1", "256", "x"],
    "--on-lost": ["", "ignore"],
    "--grace": DURATIONS,
    "--label": ["a\0", "a\udcff"],
    "--url": ["nope", "http:/x", "postgresql://u:p@ss@host/db", "postgresql://host:port/db"],
    "--url-file": ["/nowhere/at/all", "/etc/hostname\0"],
    "--schema": ["", "a-b", "1a", "a b", "x" * 42],
    "--prefix": ["", "a-b", "1a", "a b", "x" * 42],
    "--fence": ["", "0", "-1", "1.5", "x", "9" * 19],
    "--limit": ["", "0", "-1", "x", "99999999999"],
    "--reopen": ["", "x" * 256, "a\0"],
    "--older-than": DURATIONS,
    "--idle": [*DURATIONS, "59s", "40000d"],
    "--longest-ttl": [*DURATIONS, "367d"],
    "--revision": ["nope"],
    "--durability": ["", "forever"],
    "--database": ["nope"],
    "--bind": ["", "localhost", "127.0.0.1:x", "127.0.0.1:70000", "unix:"],
    "--tokens": ["", "/nowhere/at/all", "/etc"],
    "--certificate": ["/nowhere/at/all"],
    "--key": ["/nowhere/at/all"],
    "--max-ttl": [*DURATIONS, "0", "50ms", "367d"],
    "--connections": ["", "0", "-1", "x"],
    "--names": [],
    "--right": ["", "all"],
}
#: What a command needs beside the option.
NEEDED = {
    "run": ["a", "--", "true"],
    "rate": ["a", "5", "--per", "1m", "--", "true"],
    "show": ["a"],
    "runs": ["a"],
    "release": ["a", "--force"],
    "resize": ["a", "1"],
    "prune": ["--older-than", "1d"],
    "serve": ["--url", "sqlite:////nowhere/at/all.db"],
    "token": ["a", "--tokens", "/nowhere/at/all", "--names", "a"],
    "rejoin": ["a"],
    "downgrade": ["--revision", "base", "--yes"],
}


def valued(command: click.Command) -> list[str]:
    """The options of a command that take a value, by their long names."""
    return [
        max(param.opts, key=len)
        for param in command.params
        if isinstance(param, click.Option) and not param.is_flag
    ]


EACH = [(str(name), option) for name, command in app.commands.items() for option in valued(command)]


def line(command: str, *arguments: str) -> list[str]:
    """A command line with these arguments, and with all that the command needs beside them."""
    needed = NEEDED.get(command, [])
    at = needed.index("--") if "--" in needed else len(needed)
    return [command, *needed[:at], *arguments, *needed[at:]]


def complaint(here: Here, command: str, *arguments: str) -> str:
    code, out, err = here(*line(command, *arguments))
    assert (code, out) == (64, ""), (arguments, code, out, err)
    assert err.count("\n") == 1
    return err


def python_words(said: str) -> list[str]:
    """What only Python code says, outside of what the user has written."""
    known = {
        str(param.name) for each in app.commands.values() for param in each.params if param.name
    } | {"max_hold", "None", "float", "int", "str", "timedelta", "OverflowError"}
    unquoted = re.sub(r"(?<!\w)'[^']*'", "", said)
    words = set(
        re.findall(r"(?<![\w-])\w+(?:_\w+|=)|None|\b(?:float|int|str|timedelta)\b", unquoted)
    )
    return sorted(word for word in words if word.rstrip("=") in known)


@pytest.mark.parametrize(("command", "option"), EACH)
def test_an_error_names_the_option_as_it_was_typed(here: Here, command: str, option: str) -> None:
    for wrong in WRONG[option]:
        said = complaint(here, command, f"{option}={wrong}")
        assert option in said, (wrong, said)
        assert not python_words(said), said


@pytest.mark.parametrize(
    ("variable", "option"),
    [
        ("DBLOCK_URL", "--url"),
        ("DBLOCK_URL_FILE", "--url-file"),
        ("DBLOCK_SCHEMA", "--schema"),
        ("DBLOCK_PREFIX", "--prefix"),
        ("DBLOCK_TRUST_SERVER", "--trust-server"),
    ],
)
def test_an_error_names_the_variable(
    here: Here, monkeypatch: pytest.MonkeyPatch, variable: str, option: str
) -> None:
    for wrong in [" ", *WRONG.get(option, ["maybe"])]:
        if "\0" in wrong:  # no variable can hold that
            continue
        monkeypatch.setenv(variable, wrong)
        said = complaint(here, "list")
        assert variable in said or f"'{option}'" in said, (wrong, said)  # as click 8.1 says it


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--at-least", "5", "--at-most", "1s"], ["--at-least (5)", "--at-most (1s)"]),
        (["--once-per", "day", "--once-for", "x"], ["--once-per", "--once-for"]),
        (["--tz", "UTC"], ["--tz", "--once-per"]),
        (["--tz", "UTC", "--slots", "2"], ["--tz", "--once-per"]),
        (["--tz", "UTC", "--shared"], ["--tz", "--once-per"]),
        (["--wait", "1", "-n"], ["--wait", "--nonblock"]),
        (["--slots", "2", "--shared"], ["--slots", "--shared"]),
        (["--slots", "2", "--at-least", "1m"], ["--slots", "--at-least"]),
    ],
)
def test_options_that_do_not_go_together(
    here: Here, tmp_path: Any, arguments: list[str], names: list[str]
) -> None:
    """They are refused before there is a database."""
    said = complaint(here, "run", *arguments)
    assert all(name in said for name in names), said
    assert not python_words(said), said
    assert not (tmp_path / "state").exists()


def test_the_end_of_at_most_is_told_by_its_name(sqlite: Program) -> None:
    code, _, err = sqlite("run", "a", "--at-most", "200ms", "--", "sleep", "600")
    assert code == 79
    assert err.count("it was held for 0.2 s (--at-most)") == err.count("it was held for") == 2
    assert "max_hold" not in err


def test_another_limit_is_told_as_an_option(here: Here, db: Database) -> None:
    with Locks(db.url) as locks, locks.semaphore("api", 1):
        code, _, err = here.on(db)("run", "api", "--slots=3", "--", "true")
    assert code == 64
    assert "has 1 slot, and --slots=3 was asked for: use --slots=1, or change it" in err
    assert "dblock resize NAME 3" in err


@pytest.mark.parametrize("name", ["resize(5)", "limit=3", "max_hold", 'it\'s "resize(5)"'])
def test_a_name_stays_as_it_was_typed(here: Here, db: Database, name: str) -> None:
    with Locks(db.url) as locks, locks.semaphore(name, 1):
        code, _, err = here.on(db)("run", name, "--slots=3", "--", "true")
    assert code == 64
    assert f"the semaphore {name!r} has 1 slot, and --slots=3 was asked for" in err


@pytest.mark.parametrize("command", ["run", "list", "resize"])
@pytest.mark.parametrize("failure", [Unavailable, Misconfigured, OutcomeUnknown, Unsupported])
def test_what_a_server_says_stays_as_it_is(
    here: Here, monkeypatch: pytest.MonkeyPatch, command: str, failure: type[DBLockError]
) -> None:
    said = 'the server said url=x label=y limit=3 at_least=1 max_hold, "trust_server"'

    def fail(*arguments: object, **options: object) -> None:
        raise failure(said)

    monkeypatch.setattr(Locks, "__init__", fail)
    _, _, err = here(*line(command))
    assert err == f"dblock: {said}\n"


def test_a_command_has_the_words_of_its_own_options() -> None:
    said = "limit=3, max_hold and at_least=1"
    words = {name: in_shell(said, command) for name, command in app.commands.items()}
    assert words["run"] == "--slots=3, --at-most and --at-least=1"
    assert words["runs"] == "--limit=3, max_hold and at_least=1"
    assert words["resize"] == said


def test_a_framework_has_the_same_words(capfd: pytest.CaptureFixture[str]) -> None:
    def nowhere() -> Locks:
        raise AssertionError("it looked for the database")

    group = commands(lambda ctx: Given(nowhere))
    for name, command in group.commands.items():
        for option in valued(command):
            for wrong in WRONG[option]:
                with pytest.raises(click.UsageError) as refusal:
                    group.main(line(name, f"{option}={wrong}"), standalone_mode=False)
                said = refusal.value.format_message()
                assert option in said, (wrong, said)
                assert not python_words(said), said


# --- durations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0", 0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.5h", 5400),
        ("1m30s", 90),
        ("1h30m", 5400),
        ("2d12h", 216_000),
        ("1d1h1m1s1ms", 90_061.001),
        ("1m500ms", 60.5),
        ("500ms", 0.5),
        ("7d", 604_800),
        ("90m", 5400),
    ],
)
def test_a_duration(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)
    assert repr(duration(text)) == text


@pytest.mark.parametrize("text", [*DURATIONS[:2], *DURATIONS[3:-1], "-", "s", "1.5.5s", "5M", "٣"])
def test_what_is_no_duration(text: str) -> None:
    """The error shows the text, and what may stand there."""
    with pytest.raises(ValueError, match="is not a duration: give seconds") as refusal:
        duration(text)
    assert repr(text) in str(refusal.value)
    assert "1m30s" in str(refusal.value)


PARTS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def spelled(milliseconds: int) -> str:
    """A duration with as few units as say it exactly."""
    said = ""
    for unit, size in PARTS.items():
        count, milliseconds = divmod(milliseconds, size)
        said += f"{count}{unit}" if count else ""
    return said or "0"


@given(st.integers(0, 400 * 86_400_000))
def test_a_duration_in_units_is_read_back(milliseconds: int) -> None:
    text = spelled(milliseconds)
    assert duration(text) == pytest.approx(milliseconds / 1000, abs=1e-9)
    assert duration(f"-{text}") == -duration(text)
    assert repr(duration(text)) == text


@given(
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from(list(PARTS))), min_size=1, max_size=6)
)
def test_units_are_taken_in_their_order_only(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in parts)
    order = [list(PARTS).index(unit) for _, unit in parts]
    if order == sorted(set(order)):
        total = sum(count * PARTS[unit] for count, unit in parts)
        assert duration(text) == pytest.approx(total / 1000)
    else:
        with pytest.raises(ValueError, match="the longest first and each once"):
            duration(text)


def test_the_help_says_how_durations_are_written(here: Here) -> None:
    examples = HELP.partition(": ")[2].rstrip(".").split(", ")
    assert all(duration(example) for example in examples)
    for name, command in app.commands.items():
        takes = any(param.metavar == "DURATION" for param in command.params)
        said = " ".join(here(name, "--help")[1].split())
        assert (HELP in said) is takes, name
