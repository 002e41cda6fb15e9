"""Mutants of jobs and of `dblock run`: slots, least times, records, what becomes of a command."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

STATEMENTS = "dblock/dialects/jobs.py"
CRON, RUN, CHILD = "dblock/cron.py", "dblock/cli/run.py", "dblock/cli/child.py"

CONTRACT = "tests/contract/test_cron.py"
RECORD = "tests/contract/test_cron_record.py"
SIGNALS = "tests/cli/test_signals.py"
COMMAND = "tests/cli/test_cron.py"

JOBS = (
    Mutant(
        "slot-runs-again",
        "a slot that has succeeded is not run again",
        STATEMENTS,
        "AND run.exit_status = 0)",
        "AND run.exit_status = -1)",
        f"{CONTRACT}::test_a_slot_runs_once[threads-sqlite]",
    ),
    Mutant(
        "slot-kept-by-a-failure",
        "a run that failed leaves its slot open",
        STATEMENTS,
        " AND run.exit_status = 0)",
        ")",
        f"{CONTRACT}::test_a_run_that_failed_leaves_its_slot_open[threads-postgresql]",
    ),
    Mutant(
        "a-run-of-before-begins-late",
        "an older hold's run does not write over a later one's record",
        STATEMENTS,
        "(run.fence < {fence} AND NOT",
        "(NOT",
        f"{RECORD}::test_a_run_that_begins_late_does_not_touch_the_next[threads-mariadb-True-slot]",
    ),
    Mutant(
        "the-end-that-found-no-record",
        "a success is told when it is on record",
        "dblock/protocol/running.py",
        "    if not reply.matched:\n        raise (",
        "    if False:\n        raise (",
        f"{RECORD}::test_the_end_of_a_run_that_is_not_on_record[threads-postgresql]",
    ),
    Mutant(
        "a-lost-run-is-a-success-in-python",
        "a run whose lease was lost is no success",
        CRON,
        "self.record(lost)",
        "pass",
        f"{RECORD}::test_a_run_that_lost_its_lease_is_no_success[threads-sqlite]",
    ),
    Mutant(
        "slot-by-the-hosts-clock",
        "periods are by the database's clock",
        CRON,
        "return moment.strftime(",
        "return type(moment).now(moment.tzinfo).strftime(",
        f"{CONTRACT}::test_periods_are_by_the_databases_clock[threads-sqlite]",
    ),
    Mutant(
        "late-record",
        "a run that was overtaken does not write over the next one's record",
        STATEMENTS,
        'AND fence = {self.parameter("fence")}{self.durably}"""',
        'AND fence <= fence + {self.parameter("fence")}{self.durably}"""',
        f"{CONTRACT}::test_a_late_record_does_not_touch_the_next_run[threads-postgresql]",
    ),
    Mutant(
        "at-least-forgotten",
        "a run keeps its name for at least so long",
        CRON,
        "after=max(0.0, rest)",
        "after=max(0.0, min(0.0, rest))",
        f"{CONTRACT}::test_at_least[threads-sqlite]",
    ),
    Mutant(
        "at-least-by-the-living",
        "also where dblock does not live to see to it",
        CRON,
        "lease._last(self.at_least)",
        "lease._last(0.0)",
        "tests/cli/test_cron.py::test_at_least_though_dblock_was_killed",
    ),
    Mutant(
        "at-least-until-it-is-renewed",
        "nor does a renewal end it earlier",
        "dblock/protocol/keeping.py",
        "        length = max(length, self._began + self._plan.at_least - now)\n",
        "",
        "tests/cli/test_cron.py::test_at_least_though_dblock_was_killed",
    ),
    Mutant(
        "prune-takes-the-last-run",
        "pruning leaves the record of a name's last run",
        STATEMENTS,
        'old = f"started_at < {self.ago} AND {later}"',
        'old = f"started_at < {self.ago}"',
        f"{CONTRACT}::test_prune[threads-sqlite]",
    ),
    Mutant(
        "lost-run-is-a-success",
        "a run whose lock was lost is no success, whatever the command says",
        RUN,
        "_record(running, exits.LOST)",
        "_record(running, code)",
        f"{COMMAND}::test_a_run_whose_lock_is_lost_is_on_record[kill]",
    ),
    Mutant(
        "unrecorded-slot-is-a-success",
        "a slot's run that could not be recorded is told",
        RUN,
        "if running.run.slot and code == exits.OK:",
        "if not running.run.slot and code == exits.OK:",
        f"{COMMAND}::test_a_run_that_cannot_be_recorded",
    ),
    Mutant(
        "orphan-after-kill",
        "a command does not outlive a dblock that was killed, even one that ignores TERM",
        CHILD,
        'kill -s KILL -- "$target"',
        'true "$target"',
        f"{SIGNALS}::test_killed_by_kill_it_leaves_no_command_behind",
    ),
    Mutant(
        "only-the-command-is-ended",
        "the loss of the lock ends what the command started too",
        CHILD,
        "while not (child.ended() if kill_at is None else child.all_ended()):",
        "while not child.ended():",
        f"{SIGNALS}::test_what_outlives_the_command_is_killed",
    ),
    Mutant(
        "no-group",
        "what the command started gets the signals too",
        CHILD,
        "self._target = -(leader or self.pid) if self.apart else self.pid",
        "self._target = self.pid",
        f"{SIGNALS}::test_what_the_command_started_gets_the_signals_too",
    ),
    Mutant(
        "no-terminal",
        "on a terminal the command can read from it",
        CHILD,
        "self.apart = not _has_terminal()",
        "self.apart = True",
        f"{SIGNALS}::test_on_a_terminal_the_command_can_read_from_it",
    ),
    Mutant(
        "cancelled-run-not-ended",
        "a run that is cancelled has failed, and gives its lease back",
        "dblock/aio/cron.py",
        "except BaseException as error:",
        "except Exception as error:",
        "tests/aio/test_cron.py::test_a_cancelled_run_leaves_its_slot_open",
    ),
    Mutant(
        "run-not-ended-by-its-loss",
        "a run under await is ended by the loss of its lease if asked",
        "dblock/aio/cron.py",
        "        self.lease.begin_body()\n",
        "",
        "tests/aio/test_cron.py::test_a_run_is_ended_by_its_loss",
    ),
)
