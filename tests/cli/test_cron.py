"""`dblock run` as cron has it: for at least and at most so long, once in a slot, on record."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from dblock import Locks
from tests.cli.conftest import PYTHON, Here, Program, beside_the_place
from tests.cli.test_run import ON_TERM, rename
from tests.conftest import NewDatabase
from tests.servers import execute
from tests.support import SECONDS, eventually, expire


@pytest.fixture
def told(sqlite: Program, here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    """What starts no command, on the same database."""
    monkeypatch.setenv("DBLOCK_URL", sqlite.environment["DBLOCK_URL"])
    return here


def shown(told: Here, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(told("show", name, "--json")[1])
    return found


def test_at_least(sqlite: Program, told: Here) -> None:
    assert sqlite("run", "a", "--at-least", "2h", "--", "true") == (0, "", "")
    left = shown(told, "a")["expires_in"]
    assert isinstance(left, float)
    assert 6000 < left <= 7200
    assert re.search(r"state    done, kept until \S+ \S+ UTC\n", told("show", "a")[1])
    assert told("list")[1].startswith("a\tdone, kept until ")
    code, out, err = sqlite("run", "a", "-n", "--", "echo", "ran")
    assert (code, out) == (75, "")
    assert "was not acquired" in err
    with Locks(sqlite.environment["DBLOCK_URL"]) as locks:
        expire(locks.engine, locks, "a")  # its time is over
        locks.engine.dispose()
    assert told("show", "a")[0] == 1
    assert "state    free" in told("show", "a")[1]
    assert told("list")[2].endswith("dblock: nobody holds a lock\n")


def test_at_least_though_dblock_was_killed(sqlite: Program, told: Here) -> None:
    """Nobody is left who could see to it."""
    holder = sqlite.start(
        "run", "a", "--ttl", "1", "--at-least", "2h", "--", "sh", "-c", "echo started; sleep 600"
    )
    assert holder.line() == "started"

    with Locks(sqlite.environment["DBLOCK_URL"]) as locks:
        first = locks.show("a").expires_at
        eventually(lambda: locks.show("a").expires_at != first)  # renewed
        holder.send(signal.SIGKILL)
        holder.process.wait(SECONDS)
        left = locks.show("a").remaining
    assert left is not None
    assert 6000 < left <= 7201


def test_at_least_when_it_was_slower(sqlite: Program, told: Here) -> None:
    assert sqlite("run", "a", "--at-least", "0.1", "--", "sleep", "0.2") == (0, "", "")
    assert shown(told, "a")["state"] == "free"


def test_at_least_is_not_for_what_did_not_run(sqlite: Program, told: Here) -> None:
    """Another host may have the command."""
    assert sqlite("run", "a", "--at-least", "2h", "--", "no-such-command")[0] == 127
    assert shown(told, "a")["state"] == "free"


def test_at_most(sqlite: Program, told: Here) -> None:
    code, out, err = sqlite("run", "a", "--at-most", "2", "--grace", "60", "--", *PYTHON, ON_TERM)
    assert (code, out) == (79, "started\nterminated\n")
    assert "held for 2 s" in err
    last = shown(told, "a")["last_run"]
    assert isinstance(last, dict)
    assert last["exit_status"] == 79  # though the command may have called it a success


def test_once_for_a_slot(sqlite: Program) -> None:
    """Two at the same time, and one later."""
    command = ("run", "a", "--once-for", "2026-11-21", "--", "echo", "ran")
    hosts = [sqlite.start(*command) for _ in range(2)]
    ended = [host.finish() for host in hosts]
    assert sorted(ended) == [(0, "", ""), (0, "ran\n", "")]
    assert sqlite(*command) == (0, "", "")


def test_a_run_that_failed_leaves_its_slot_open(sqlite: Program) -> None:
    for script, code in (("exit 3", 3), ("kill -KILL $$", 137), ("", 0)):
        assert sqlite("run", "a", "--once-for", "x", "--", "sh", "-c", script) == (code, "", "")
    assert sqlite("run", "a", "--once-for", "x", "--", "echo", "ran") == (0, "", "")


def test_a_slot_by_the_databases_clock(sqlite: Program, told: Here) -> None:
    code, out, _ = sqlite("run", "a", "--once-per", "day", "--", "sh", "-c", "echo $DBLOCK_SLOT")
    assert code == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\n", out)
    last = shown(told, "a")["last_run"]
    assert isinstance(last, dict)
    assert out.strip() == f"{datetime.fromisoformat(last['started_at']):%Y-%m-%d}"


def test_a_slot_of_a_time_zone(sqlite: Program, told: Here) -> None:
    """Of one that is always in another day than UTC, or in the same."""
    for zone in ("Etc/GMT-14", "Etc/GMT+12"):
        command = ("run", "a", "--once-per", "day", "--tz", zone, "--", "sh", "-c")
        code, out, _ = sqlite(*command, "echo $DBLOCK_SLOT")
        assert code == 0
        last = shown(told, "a")["last_run"]
        assert isinstance(last, dict)
        started = datetime.fromisoformat(last["started_at"]).astimezone(ZoneInfo(zone))
        assert out.strip() == last["slot"] == f"{started:%Y-%m-%d}"
    for options, says in (
        (["--once-per", "day", "--tz", "Europe/Nowhere"], "'Europe/Nowhere'"),
        (["--once-for", "x", "--tz", "Europe/Berlin"], "a time zone goes with --once-per"),
        (["--tz", "Europe/Berlin"], "a time zone goes with --once-per"),
    ):
        code, _, err = told("run", "a", *options, "--", "true")
        assert code == 64
        assert says in err
        assert err.count("\n") == 1


def test_another_code_for_done(sqlite: Program) -> None:
    command = ("run", "a", "--once-for", "x", "-D", "3", "--", "echo", "ran")
    assert sqlite(*command) == (0, "ran\n", "")
    assert sqlite(*command) == (3, "", "")


def test_the_last_run_is_shown(sqlite: Program, told: Here) -> None:
    sqlite("run", "a", "--label", "me", "--once-for", "x\x1b", "--", "sh", "-c", "exit 3")
    _, out, _ = told("show", "a")
    said = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert re.fullmatch(r"\S+ \S+ UTC by \S+ pid \d+ me for x\\x1b", said["run"])
    assert re.fullmatch(r"exit status 3 at \S+ \S+ UTC", said["ended"])
    last = shown(told, "a")["last_run"]
    assert isinstance(last, dict)
    assert (last["slot"], last["exit_status"]) == ("x\x1b", 3)
    holder = sqlite.holder("a")
    assert "state    running\n" in told("show", "a")[1]
    assert "ended    running" in told("show", "a")[1]
    holder.finish()


def test_the_runs_are_listed(sqlite: Program, told: Here) -> None:
    """The newest first; without a slot there is one record for all of them."""
    assert told("runs", "a") == (0, "", "dblock: no run of 'a' is on record\n")
    assert json.loads(told("runs", "a", "--json")[1]) == []
    for slot, script in (("one", "exit 3"), ("two\x1b", "true"), (None, "exit 4"), (None, "true")):
        options = () if slot is None else ("--once-for", slot)
        sqlite("run", "a", "--label", "me", *options, "--", "sh", "-c", script)
    holder = sqlite.holder("a", "--once-for", "three")
    code, out, err = told("runs", "a")
    found = json.loads(told("runs", "a", "--json")[1])
    holder.finish()
    assert (code, err) == (0, "")
    rows = [line.split("\t") for line in out.splitlines()]
    ends = ["running", "exit status 0", "exit status 0", "exit status 3"]
    assert [row[1] for row in rows] == ["three", "", r"two\x1b", "one"]
    assert [row[3] for row in rows] == ends
    assert all(re.fullmatch(r"\S+ \S+ UTC", row[0]) for row in rows)
    assert all(row[2].endswith(" me") for row in rows[1:])
    assert [bool(re.fullmatch(r"\d+\.\d", row[4])) for row in rows] == [False, True, True, True]
    assert [(run["slot"], run["exit_status"], run["outcome"]) for run in found] == [
        ("three", None, "running"),
        (None, 0, "succeeded"),
        ("two\x1b", 0, "succeeded"),
        ("one", 3, "failed"),
    ]
    fences = [run["fence"] for run in found]
    assert fences == sorted(fences, reverse=True)
    first, second = (datetime.fromisoformat(found[-1][key]) for key in ("started_at", "ended_at"))
    assert found[-1]["seconds"] == pytest.approx((second - first).total_seconds())
    assert len(told("runs", "a", "--limit", "2")[1].splitlines()) == 2
    assert told("runs", "a", "--limit", "0")[0] == 64


def test_a_slot_is_reopened(sqlite: Program, told: Here) -> None:
    for code in (0, 0):
        assert sqlite("run", "a", "--once-for", "one", "--", "true")[0] == code
    assert told("runs", "a", "--reopen", "two") == (
        1,
        "",
        "dblock: 'two' of 'a' was open: no run that succeeded is on record for it\n",
    )
    assert told("runs", "a", "--reopen", "one") == (
        0,
        "'one' of 'a' is open: the next start runs it\n",
        "",
    )
    holder = sqlite.holder("a", "--once-for", "one")
    assert told("runs", "a", "--reopen", "one") == (1, "", "dblock: 'a' is running for 'one'\n")
    holder.finish()
    assert told("runs", "a", "--reopen", "one", "--json")[0] == 64
    assert told("runs", "a", "--reopen", "one", "--limit", "20") == (
        64,
        "",
        "dblock: --limit is for the list: --reopen prints none (try 'dblock runs --help')\n",
    )
    assert told("runs", "a", "--reopen", "")[0] == 64
    assert "exit status 0" in told("runs", "a")[1]


def test_the_runs_on_a_terminal(sqlite: Program) -> None:
    sqlite("run", "a", "--once-for", "[red]", "--", "true")
    master, slave = pty.openpty()
    listing = sqlite.start("runs", "a", stdout=slave)
    os.close(slave)
    assert listing.process.wait(SECONDS) == 0
    said = os.read(master, 100_000).decode()
    os.close(master)
    assert "STARTED" in said
    assert "[red]" in said


def test_a_run_whose_process_died(sqlite: Program, told: Here) -> None:
    sqlite("run", "a", "--once-for", "x", "--", "true")
    url = sqlite.environment["DBLOCK_URL"]
    execute(url, "UPDATE dblock_run SET ended_at = NULL, exit_status = NULL")
    (run,) = json.loads(told("runs", "a", "--json")[1])
    assert (run["outcome"], run["seconds"]) == ("unknown", None)
    assert "no end on record" in told("runs", "a")[1]


@pytest.mark.parametrize(("slot", "code"), [([], 0), (["--once-for", "x"], 78)])
def test_a_run_that_cannot_be_recorded(
    sqlite: Program, told: Here, slot: list[str], code: int
) -> None:
    """It is told; and it is no success where that would mean once for the slot."""
    holder = sqlite.holder("a", *slot)
    rename(sqlite, "dblock_run", "away")
    ended, _, err = holder.finish()
    assert ended == code
    assert err.startswith("dblock: could not record this run of 'a' (it ended with 0): ")
    assert err.count("\n") == 1
    rename(sqlite, "away", "dblock_run")
    assert shown(told, "a")["state"] == "free"


@pytest.mark.parametrize("on_lost", ["kill", "warn"])
def test_a_run_whose_lock_is_lost_is_on_record(sqlite: Program, told: Here, on_lost: str) -> None:
    """Whatever the command says, and whether dblock learns of it before its end or then."""
    for ttl in ("2", "30"):
        options = ("--ttl", ttl, "--once-for", ttl, "--on-lost", on_lost)
        holder = sqlite.holder("a", *options)
        assert sqlite("release", "a", "--force")[0] == 0
        if ttl == "2" and on_lost == "kill":  # it says nothing yet to who only warns
            assert holder.end()[0] == 79
        else:
            assert holder.finish()[0] == 79
        with Locks(sqlite.environment["DBLOCK_URL"]) as locks:
            last = locks.last_run("a")
        assert last is not None
        assert (last.slot, last.exit_status) == (ttl, 79)
        assert sqlite("run", "a", "--once-for", ttl, "--", "echo", "ran") == (0, "ran\n", "")


def test_a_run_that_another_has_followed(sqlite: Program, told: Here) -> None:
    """The record is the other's, and this one no success."""
    holder = sqlite.holder("a", "--once-for", "x")
    assert sqlite("release", "a", "--force")[0] == 0
    assert sqlite("run", "a", "--once-for", "x", "--", "echo", "ran") == (0, "ran\n", "")
    code, _, err = holder.finish()
    assert code == 79
    assert "was released by force" in err
    assert err.endswith("the command ended with 0\n")
    assert err.count("\n") == 1
    last = shown(told, "a")["last_run"]
    assert isinstance(last, dict)
    assert last["exit_status"] == 0
    assert sqlite("run", "a", "--once-for", "x", "--", "echo", "ran") == (0, "", "")


def test_a_run_whose_record_is_gone(sqlite: Program) -> None:
    holder = sqlite.holder("a", "--once-for", "x")
    execute(sqlite.environment["DBLOCK_URL"], "DELETE FROM dblock_run")
    code, _, err = holder.finish()
    assert code == 70
    assert "not on record" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--at-least", "2m", "--at-most", "1m"], "longer than --at-most"),
        (["--at-least", "-1"], "cannot be negative"),
        (["--at-most", "0"], "at least 0.1 seconds"),
        (["--at-most", "5x"], "'5x' is not a duration"),
        (["--wait", "m"], "'m' is not a duration"),
        (["--once-for", ""], "a slot of your own cannot be empty"),
        (["--once-for", "day"], "cannot be the period 'day': give that as --once-per"),
        (
            ["--once-per", "day", "--once-for", "x"],
            "give either --once-per, a period, or --once-for",
        ),
        (["--once-per", "daily"], "Did you mean 'day'?"),
        (["--once-per", "24h"], "Did you mean 'day'?"),
        (["--once-per", "2026-11-21"], "Give a slot of your own as --once-for"),
        (["--on-lost", "ignore"], "'ignore'"),
        (["--grace", "-1"], "cannot be negative"),
    ],
)
def test_wrong_usage(here: Here, arguments: list[str], says: str) -> None:
    code, out, err = here("run", "a", *arguments, "--", "ls")
    assert (code, out) == (64, "")
    assert says in err
    assert beside_the_place(err).count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give what to delete: --older-than 90d, or --names --idle 30d"),
        (["--names"], "--names needs --idle"),
        (["--idle", "30d"], "--idle is for --names"),
        (["--names", "--idle", "59"], "--idle is at least 60 seconds"),
        (["--names", "--idle", "x"], "'x' is not a duration"),
        (["--names", "--idle", "40000d"], "--idle is at most 100 years"),
    ],
)
def test_wrong_usage_of_prune(here: Here, arguments: list[str], says: str) -> None:
    code, out, err = here("prune", *arguments)
    assert (code, out) == (64, "")
    assert says in err
    assert err.count("\n") == 1


def test_a_pause(program: Program, new_database: NewDatabase, sqlite: Program) -> None:
    postgresql = program.on(new_database("postgresql", migrated=True))
    code, out, _ = postgresql("pause")
    assert (code, out[:22]) == (0, "nothing is granted for")
    code, out, err = postgresql("pause", "--longest-ttl", "1s")
    assert (code, out) == (64, "")
    assert "confirm with --yes" in err
    assert postgresql("pause", "--longest-ttl", "0", "--yes")[:2] == (
        0,
        "nothing is granted for 0.0 s; earlier leases are lost\n",
    )
    code, out, err = sqlite("pause")
    assert (code != 0, out) == (True, "")
    assert "no witness" in err


def test_prune_names(sqlite: Program, told: Here) -> None:
    assert sqlite("run", "a", "--", "true")[0] == 0
    assert told("prune", "--names", "--idle", "30d")[1] == "deleted 0 names\n"
    assert told("prune", "--names", "--idle", "30d", "--older-than", "90d")[1] == (
        "deleted 0 idempotency keys and 0 records of runs\ndeleted 0 names\n"
    )


def test_prune(sqlite: Program, told: Here) -> None:
    for slot in ("x", "y"):
        assert sqlite("run", "a", "--once-for", slot, "--", "true")[0] == 0
    assert told("prune", "--older-than", "90d")[1] == (
        "deleted 0 idempotency keys and 0 records of runs\n"
    )
    eventually(
        lambda: (
            told("prune", "--older-than", "0")[1]
            == "deleted 0 idempotency keys and 0 records of runs\n"
        )
    )
    assert sqlite("run", "a", "--once-for", "y", "--", "echo", "ran") == (0, "", "")
    assert sqlite("run", "a", "--once-for", "x", "--", "echo", "ran") == (0, "ran\n", "")
