"""Mutants of what cancellation and loss leave behind in asyncio (promises 8, 9 and 11)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CANCELLATION = "tests/aio/test_cancellation.py"
LOSS, TASKS, LOOPS = "tests/aio/test_loss.py", "tests/aio/test_tasks.py", "tests/aio/test_loops.py"

ASYNCHRONOUS = (
    # --- 9: cancellation
    Mutant(
        "cancellation-swallowed",
        "a cancellation that came with an answer is raised",
        "bridge._answer",
        "_pending[this_task()] = cancelled",
        "",
        f"{CANCELLATION}::test_acquire[sqlite-lease-warm-waiting]",
    ),
    Mutant(
        "cancellation-waits",
        "a cancellation is not kept until a wait is over",
        "bridge.ready",
        "if waits and _pending:",
        "if False:",
        f"{CANCELLATION}::test_cancelled_before_it_waits[postgresql]",
    ),
    Mutant(
        "cancelled-grant-kept",
        "a cancelled acquire leaves no orphan",
        "Taking.abandon",
        "database.run(abandon(",
        "print(abandon(",
        f"{CANCELLATION}::test_acquire[sqlite-lease-warm-waiting]",
        dies_in="model dropped-handle: b.sweep#1!interrupt",
    ),
    Mutant(
        "cancelled-release-given-up",
        "a cancelled release goes on",
        "AsyncioRuntime.finish",
        "return bridge.finish(function, bridge.GRACE if cancelled else None)",
        "return function()",
        f"{CANCELLATION}::test_a_cancelled_release_goes_on[postgresql]",
    ),
    Mutant(
        "cancelled-turn-kept",
        "a cancelled statement gives its turn up",
        "Connections.take",
        "except BaseException as error:",
        "except Exception as error:",
        f"{CANCELLATION}::test_acquire[sqlite-lease-fresh-waiting]",
    ),
    Mutant(
        "cancelled-wait-on-the-server",
        "a cancelled wait for a row leaves no ghost",
        "RowLock._undo",
        "if not isinstance(error, DBLockError) and (orphaned is not None or traces):",
        "if False:",
        f"{CANCELLATION}::test_a_cancelled_wait_for_a_row_leaves_no_ghost[mariadb]",
    ),
    # --- 8: loss
    Mutant(
        "loss-claims-every-cancellation",
        "only the loss's own cancellation becomes LockLost",
        "Body.end",
        "others = self.task.uncancel() > self._cancelling",
        "others = self.task.uncancel() < 0",
        f"{LOSS}::test_both_at_the_same_moment[mariadb]",
    ),
    Mutant(
        "loss-after-a-release-stays-a-cancellation",
        "a loss is told as LockLost",
        "bodies.Bodies.end",
        "if body.task is this_task()",
        "if False",
        f"{LOSS}::test_a_loss_that_is_told_while_the_body_gives_back[sqlite-lease]",
    ),
    Mutant(
        "loss-stays-a-cancellation",
        "the loss's own cancellation is taken back",
        "Body.end",
        "others = self.task.uncancel() > self._cancelling",
        "others = self.task.cancelling() - 1 > self._cancelling",
        f"{LOSS}::test_the_body_is_cancelled_by_its_loss[mariadb-task]",
    ),
    Mutant(
        "loss-cancels-who-knows",
        "a body that found its loss itself is not cancelled",
        "Body.lose",
        "if self._loss is None and whose() is not self.task:",
        "if self._loss is None:",
        f"{LOSS}::test_a_loss_that_the_body_finds_itself_does_not_cancel_it[mariadb]",
    ),
    Mutant(
        "loss-cancels-every-body",
        "only the body of the lost hold is cancelled",
        "Bodies.lose",
        "if hold.loss is loss:",
        "if True:",
        f"{LOSS}::test_only_the_body_of_the_lost_hold_is_cancelled[postgresql]",
    ),
    Mutant(
        "keeper-always-in-the-loop",
        "a keeper in a thread goes on while the loop is blocked",
        "Bridged.__init__",
        "keeper_in_thread if keeper_thread else keeper_here",
        "keeper_here",
        f"{LOSS}::test_a_loop_that_was_blocked_is_told_afterwards[mysql-thread]",
    ),
    # --- 11: who holds
    Mutant(
        "tasks-of-a-thread-are-one",
        "reentrancy follows the task",
        "TaskHolds.mine",
        "key = whose() or self",
        "key = self",
        f"{TASKS}::test_reentrant_is_by_task[sqlite]",
    ),
    Mutant(
        "second-loop-let-in",
        "a second event loop is told",
        "Home._check_loop",
        "if self._loop is not loop:",
        "if self._loop is None:",
        f"{LOOPS}::test_a_second_loop_is_told[sqlite]",
    ),
)
