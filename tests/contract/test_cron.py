"""Jobs: run by one of many, once for a slot, for at least and at most so long, on record."""

from __future__ import annotations

import logging
import re
import threading
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from dblock import CronJob, LockLost, Locks, NotAcquired, NotHeld, RunState
from dblock.handles.periods import PERIODS
from dblock.protocol.schema_version import SCHEMA_VERSION
from tests.contract.conftest import NewLocks
from tests.support import LONG, ROUNDING, TABLE, Threads, eventually

LATER = 5000.0


class Count:
    """A job that counts how often it was run."""

    def __init__(self) -> None:
        self.runs = 0
        self._lock = threading.Lock()

    def __call__(self) -> int:
        with self._lock:
            self.runs += 1
            return self.runs


# --- a lease that is left to run out -----------------------------------------------------------


@pytest.mark.parametrize("after", [LONG / 2, LATER])
def test_released_for_later(locks: Locks, after: float) -> None:
    """Sooner than its TTL would have it, or later."""
    lease = locks.lease("a", ttl=LONG)
    lease.acquire()
    lease.release(after=after)
    assert not lease.held
    remaining = locks.show("a").remaining
    assert remaining is not None
    assert after - LONG / 2 < remaining <= after + ROUNDING
    with pytest.raises(NotHeld):
        lease.release()
    assert locks.lease("a", wait=0).acquire() is False


def test_it_runs_out(locks: Locks) -> None:
    lease = locks.lease("a", ttl=LATER)
    lease.acquire()
    lease.release(after=0.2)
    assert lease.acquire(timeout=LONG)  # far less than the TTL
    lease.release(after=0.0)
    assert not locks.show("a").held


def test_a_lost_one_is_not_kept(locks: Locks) -> None:
    lease = locks.lease("a", ttl=LONG)
    lease.acquire()
    locks.release("a", force=True)
    with pytest.raises(LockLost, match="by force"):
        lease.release(after=LATER)
    assert not locks.show("a").held


def test_wrong_arguments(locks: Locks) -> None:
    with locks.lease("a") as lease:
        for after in (-1, float("nan"), float("inf"), "soon", 1e9):
            with pytest.raises((ValueError, TypeError, OverflowError)):
                lease.release(after)  # type: ignore[arg-type]
            assert lease.held


def test_the_margin_is_the_last_terms(locks: Locks) -> None:
    lease = locks.lease("a", ttl=20)
    with pytest.raises(NotHeld):
        _ = lease.margin
    with lease:
        assert lease.margin == 2
        lease.renew(10)
        assert lease.margin == 1
    assert lease.margin == 1


# --- jobs --------------------------------------------------------------------------------------


def test_one_runs_the_others_skip(locks: Locks, caplog: pytest.LogCaptureFixture) -> None:
    @locks.cron("nightly")
    def nightly(word: str) -> str:
        """Says a word."""
        assert nightly.lease.held
        assert nightly("another") is None
        return word

    with caplog.at_level(logging.INFO, "dblock"):
        assert nightly("one") == "one"
    assert "a run was skipped: 'nightly'" in caplog.text
    assert (nightly.__name__, nightly.__doc__) == ("nightly", "Says a word.")
    assert not locks.show("nightly").held


def test_a_slot_runs_once(locks: Locks, new_locks: NewLocks, threads: Threads) -> None:
    """Many try it at once, on connections of their own, and wait for each other."""
    count = Count()

    for _ in range(6):
        threads.start(new_locks().cron("a", wait=LONG, once_for="2026-11-21")(count))
    threads.join()
    assert count.runs == 1
    assert locks.cron("a", once_for="2026-11-22")(count)() == 2
    assert locks.cron("a", once_for="2026-11-21")(count)() is None
    assert locks.cron("b", once_for="2026-11-21")(count)() == 3
    assert locks.cron("a")(count)() == 4


def test_a_run_that_failed_leaves_its_slot_open(locks: Locks) -> None:
    outcomes = [True, False]

    @locks.cron("a", once_for="slot")
    def job() -> str:
        if outcomes.pop():
            return "done"
        raise KeyError("not now")

    with pytest.raises(KeyError):
        job()
    failed = job.last_run()
    assert failed is not None
    assert (failed.slot, failed.exit_status) == ("slot", 1)
    assert job() == "done"
    assert job() is None
    assert outcomes == []


def test_a_run_whose_process_died_leaves_its_slot_open(locks: Locks, engine: Engine) -> None:
    job = locks.cron("a", once_for="slot")(Count())
    assert job() == 1
    with engine.begin() as connection:
        connection.execute(text("UPDATE dblock_run SET exit_status = NULL, ended_at = NULL"))
    assert job() == 2


def test_a_late_record_does_not_touch_the_next_run(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    """A holder that lost its lease ends when another has begun."""

    @locks.cron("a", once_for="slot", ttl=LONG)
    def first() -> None:
        locks.release("a", force=True)
        threads.run(second)

    @others.cron("a", once_for="slot", ttl=LONG)
    def second() -> None:
        pass

    with pytest.raises(LockLost):
        first()
    last = locks.last_run("a")
    assert last is not None
    assert last.exit_status == 0


def test_periods_are_by_the_databases_clock(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    literal = {"postgresql": "timestamptz '2025-12-31 23:59:58.5+00'"}
    moment = literal.get(locks._database.dialect.name, "'2025-12-31 23:59:58.5'")
    monkeypatch.setattr(locks._database.dialect, "clock", moment)
    expected = {
        "minute": "2025-12-31T23:59",
        "hour": "2025-12-31T23",
        "day": "2025-12-31",
        "week": "2026-W01",
        "month": "2025-12",
    }
    assert list(expected) == list(PERIODS)
    for period, slot in expected.items():
        job = locks.cron(period, once_per=period)(Count())
        job()
        last = job.last_run()
        assert last is not None
        assert last.slot == slot


@pytest.mark.parametrize(
    ("moment", "slots"),
    [
        ("2026-10-25 00:30:00", ["2026-10-25T02:30+0200", "2026-10-25T02+0200", "2026-10-25"]),
        ("2026-10-25 01:30:00", ["2026-10-25T02:30+0100", "2026-10-25T02+0100", "2026-10-25"]),
        ("2026-03-29 01:00:00", ["2026-03-29T03:00+0200", "2026-03-29T03+0200", "2026-03-29"]),
        ("2026-03-29 22:00:00", ["2026-03-30T00:00+0200", "2026-03-30T00+0200", "2026-03-30"]),
    ],
)
def test_periods_of_a_time_zone(
    locks: Locks, monkeypatch: pytest.MonkeyPatch, moment: str, slots: list[str]
) -> None:
    literal = {"postgresql": f"timestamptz '{moment}+00'"}
    monkeypatch.setattr(
        locks._database.dialect, "clock", literal.get(locks._database.dialect.name, f"'{moment}'")
    )
    for period, slot in zip(("minute", "hour", "day"), slots, strict=True):
        for tz in ("Europe/Berlin", ZoneInfo("Europe/Berlin")):
            job = locks.cron(period, once_per=period, tz=tz)(Count())
            job()
            last = job.last_run()
            assert last is not None
            assert last.slot == slot


def test_at_least(locks: Locks) -> None:
    job = locks.cron("a", at_least=LATER)(Count())
    assert job() == 1
    assert not job.lease.held
    remaining = locks.show("a").remaining
    assert remaining is not None
    assert LATER - LONG < remaining <= LATER + ROUNDING
    assert job() is None
    with pytest.raises(NotAcquired, match="held by"), locks.lease("a", wait=0):
        pass


def test_at_most(locks: Locks) -> None:
    told: list[LockLost] = []

    @locks.cron("a", at_most=0.4, on_lost=told.append)
    def job() -> None:
        eventually(lambda: bool(told))
        job.lease.check()

    with pytest.raises(LockLost, match="max_hold"):
        job()


def test_a_loss_is_told_after_the_functions_own_error(locks: Locks) -> None:
    @locks.cron("a")
    def job() -> None:
        locks.release("a", force=True)
        raise KeyError("its own")

    with pytest.raises(KeyError) as caught:
        job()
    assert "LockLost" in "".join(caught.value.__notes__)


def later(job: CronJob[[], int], run: RunState) -> bool:
    """Whether its last run began after that one."""
    last = job.last_run()
    assert last is not None
    assert last.started_at is not None
    assert run.started_at is not None
    return last.started_at > run.started_at


def test_the_record(locks: Locks) -> None:
    job = locks.cron("a", label="me")(Count())
    assert job.last_run() is None
    before = locks.show("a")
    job()
    last = locks.last_run("a")
    assert last == job.last_run()
    assert last is not None
    assert before.owner is None
    assert (last.name, last.slot, last.exit_status) == ("a", "", 0)
    assert str(last.owner).endswith(" me")
    assert last.started_at is not None
    assert last.ended_at is not None
    assert last.started_at <= last.ended_at
    assert abs((datetime.now(UTC) - last.ended_at).total_seconds()) < 600
    with_slot = locks.cron("a", once_for="á ")(Count())
    with_slot()
    assert locks.last_run("a") == with_slot.last_run()
    last = with_slot.last_run()
    assert last is not None
    assert last.slot == "á "
    assert [run.slot for run in locks.runs("a")] == ["á ", ""]
    assert locks.runs("a", limit=1) == [last]
    assert locks.last_runs() == [last]
    other = locks.cron("b")(Count())
    eventually(lambda: bool(other()) and later(other, last))  # SQLite's clock has milliseconds
    assert [run.name for run in locks.last_runs()] == ["b", "a"]
    assert [run.name for run in locks.last_runs(limit=1)] == ["b"]
    assert (last.outcome, last.running, last.fence) == ("succeeded", False, locks.show("a").fence)
    assert last.seconds is not None
    assert locks.cron("a", once_for="a")(Count())() == 1  # exact, as names are


def test_a_slot_is_reopened(locks: Locks) -> None:
    """Only one that has succeeded; what is on record of others stays."""
    job = locks.cron("a", once_for="á ")(Count())
    other = locks.cron("a", once_for="other")(Count())
    assert (job(), other(), job()) == (1, 1, None)
    assert locks.reopen("a", "á ") is True
    assert locks.reopen("a", "á ") is False
    assert [run.slot for run in locks.runs("a")] == ["other"]
    assert (job(), other()) == (2, None)

    @locks.cron("b", once_for="x")
    def fails() -> None:
        assert locks.reopen("b", "x") is False  # it runs
        raise KeyError("of the job")

    with pytest.raises(KeyError):
        fails()
    assert locks.reopen("b", "x") is False
    assert [run.outcome for run in locks.runs("b")] == ["failed"]
    with pytest.raises(ValueError, match="a slot cannot be empty"):
        locks.reopen("a", "")


def test_wrong_jobs(locks: Locks) -> None:
    with pytest.raises(ValueError, match="longer than at_most"):
        locks.cron("a", at_least=2, at_most=1)
    for zone in ("Europe/Nowhere", "Europe", "", "/etc/localtime", "a\0b"):
        with pytest.raises(ValueError, match="knows no time zone"):
            locks.cron("a", once_per="day", tz=zone)
    with pytest.raises(TypeError, match="tz is a zone's name"):
        locks.cron("a", once_per="day", tz=1)  # type: ignore[arg-type]
    for slot in (None, "2026-11-21"):
        with pytest.raises(ValueError, match="time zone goes with once_per"):
            locks.cron("a", once_for=slot, tz="Europe/Berlin")
    with pytest.raises(ValueError, match="once_for cannot be empty"):
        locks.cron("a", once_for="")
    with pytest.raises(ValueError, match="give either once_per, a period, or once_for"):
        locks.cron("a", once_per="day", once_for="2026-11-21")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("minutely", "minutes", "Minute", "1m", "60s", "min"), "minute"),
        (("hourly", "hours", "Hour", "1h", "60m", "@hourly", "1 hour"), "hour"),
        (("daily", "days", "Day", "1d", "24h", "dya", "@daily", " day", "every day"), "day"),
        (("weekly", "weeks", "WEEK", "1w", "7d", "1week"), "week"),
        (("monthly", "months", "Month", "@monthly", "1 month"), "month"),
        (("", "2026-11-21", "0 2 * * *", "30m", "release 1"), None),
    ],
)
def test_a_word_that_is_no_period_is_refused(
    locks: Locks, words: tuple[str, ...], meant: str | None
) -> None:
    """It would be a slot that never ends, so the job would succeed once for ever."""
    for word in words:
        with pytest.raises(ValueError, match="once_per is one of minute, hour, day") as refused:
            locks.cron("a", once_per=word)
        hint = re.search(r"Did you mean '(\w+)'", str(refused.value))
        assert (hint and hint[1]) == meant, word
    with pytest.raises(TypeError, match="once_per is a str"):
        locks.cron("a", once_per=1)  # type: ignore[arg-type]
    if meant is not None:
        with pytest.raises(ValueError, match=f"period '{meant}': give that as once_per"):
            locks.cron("a", once_for=meant)


def test_a_record_of_a_period_counts_for_its_slot(locks: Locks) -> None:
    """Whichever way a slot is named, it is one record, also one that older code has made."""
    job = locks.cron("a", once_per="month")(Count())
    assert job() == 1
    last = job.last_run()
    assert last is not None
    assert locks.cron("a", once_for=last.slot)(Count())() is None


def test_a_coroutine_function_is_no_job(locks: Locks) -> None:
    async def coroutine() -> None: ...

    with pytest.raises(TypeError, match="before its body runs"):
        locks.cron("a")(coroutine)


# --- pruning -----------------------------------------------------------------------------------


def test_prune(locks: Locks, engine: Engine) -> None:
    """What is old goes, in more than one statement; not a fence, not the last run of a name."""
    for slot in ("first", "second"):
        locks.cron("a", once_for=slot)(Count())()
    locks.cron("b")(Count())()
    fence = locks.show("a").fence
    key = locks._database.dialect.key
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO dblock_applied VALUES (:key, '2020-01-01 00:00:00')"),
            [{"key": key(f"old {number}")} for number in range(1005)],
        )
        connection.execute(
            text("INSERT INTO dblock_applied VALUES (:key, '2999-01-01 00:00:00')"),
            {"key": key("new")},
        )
        old = "UPDATE dblock_run SET started_at = '2020-01-01 00:00:00' WHERE slot <> :slot"
        connection.execute(text(old), {"slot": key("second")})
    assert locks.prune(older_than=LATER) == (1005, 1)
    assert locks.prune(older_than=LATER) == (0, 0)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM dblock_applied")).scalar() == 1
        assert connection.execute(text("SELECT revision FROM dblock_schema")).scalar() == (
            SCHEMA_VERSION
        )
        assert len(connection.execute(TABLE.select()).all()) == 2
    last = locks.last_run("a")
    assert last is not None
    assert last.slot == "second"
    assert locks.last_run("b") is not None
    assert locks.show("a").fence == fence
    assert locks.cron("a", once_for="second")(Count())() is None
    assert locks.cron("a", once_for="first")(Count())() == 1
    with pytest.raises(ValueError, match="negative"):
        locks.prune(-1)
