"""Mutants of waiting at a name's gate (promise 10)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

GATE, CALLING = "dblock/gate.py", "dblock/dialects/calling.py"
ACQUIRING, HOLDS, LEASE = "dblock/protocol/acquiring.py", "dblock/holds.py", "dblock/lease.py"
WAITS, ENDS = "tests/waiting/test_gate.py", "tests/waiting/test_gate_ends.py"
HOLDING = "tests/waiting/test_gate_holds.py"
QUICKLY = "a name that changes hands quickly is waited for in the server"
ORDER = "nobody overtakes who waits"
KEPT = "nobody keeps the gate without the name"

GATES = (
    Mutant(
        "the-gate-is-kept-without-the-row",
        KEPT,
        GATE,
        "            elif step.first or step.last:\n                self._leave(connection)",
        "            elif step.first or step.last:\n                self._give(connection)",
        f"{WAITS}::test_the_gate_is_not_kept_without_the_row",
    ),
    Mutant(
        "judged-by-the-snapshot",
        QUICKLY,
        CALLING,
        "WHERE lock_name = %(name)s FOR NO KEY UPDATE OF k",
        "WHERE lock_name = %(name)s AND {self.turn(LAST)} FOR NO KEY UPDATE OF k",
        f"{WAITS}::test_one_statement_takes_it_and_one_gives_it_back",
    ),
    Mutant(
        "taken-by-the-snapshot",
        "mutual exclusion",
        CALLING,
        "WHERE lock_name = %(name)s FOR NO KEY UPDATE OF k",
        "WHERE lock_name = %(name)s",
        f"{WAITS}::test_it_is_not_granted_to_two",
    ),
    Mutant(
        "joining-at-the-gate-locks-like-a-grant",
        "who waits disturbs no guard",
        CALLING,
        "FOR NO KEY UPDATE OF k",
        "FOR UPDATE OF k",
        f"{WAITS}::test_who_joins_at_the_gate_disturbs_no_guard[under way-READ COMMITTED]",
    ),
    Mutant(
        "taken-over-at-the-gate",
        "a stale holder cannot commit",
        CALLING,
        "ON k.lock_name = free.lock_name FOR UPDATE OF k",
        "ON k.lock_name = free.lock_name",
        f"{WAITS}::test_who_is_at_the_gate_takes_nothing_over_under_a_guard",
    ),
    Mutant(
        "the-gate-comes-before-the-queue",
        ORDER,
        CALLING,
        "FROM newest WHERE {self.turn(LAST)}",
        "FROM newest WHERE {self.turn('0')}",
        f"{WAITS}::test_the_queue_comes_before_the_gate",
    ),
    Mutant(
        "overtaking-at-the-gate",
        ORDER,
        CALLING,
        "{_before('NULL')} END + {self.gated}\"",
        "{_before('NULL')} END\"",
        f"{WAITS}::test_who_only_comes_now_is_held_up_for_a_moment[given back]",
    ),
    Mutant(
        "overtaking-at-the-gate-with-a-ticket",
        ORDER,
        CALLING,
        "self.turn(_before(_PLACE) + newcomer)",
        "self.turn(_before(_PLACE))",
        f"{WAITS}::test_who_only_comes_now_and_may_queue_has_to",
    ),
    Mutant(
        "released-with-the-gate-shut",
        KEPT,
        "dblock/dialects/postgresql.py",
        'f"{self._release}, pg_advisory_unlock(%(gate)s)"',
        "self._release",
        f"{WAITS}::test_one_statement_takes_it_and_one_gives_it_back",
    ),
    Mutant(
        "a-renewed-hold-keeps-the-gate",
        KEPT,
        HOLDS,
        "        self._leave_gate()  # nobody waits at it any more\n",
        "",
        f"{HOLDING}::test_a_renewal_lets_it_go[postgresql]",
    ),
    Mutant(
        "a-lost-hold-keeps-the-gate",
        KEPT,
        HOLDS,
        "            self._leave_gate()\n",
        "",
        f"{HOLDING}::test_the_loss_itself_lets_it_go[postgresql]",
    ),
    Mutant(
        "a-name-left-to-run-out-keeps-the-gate",
        KEPT,
        LEASE,
        "                hold.gate.drop()\n",
        "                pass\n",
        f"{HOLDING}::test_a_name_that_is_left_to_run_out_has_no_gate[postgresql]",
    ),
    Mutant(
        "interrupted-and-keeps-the-gate",
        KEPT,
        LEASE,
        "                gate.drop()\n            if not isinstance",
        "                pass\n            if not isinstance",
        f"{ENDS}::test_ctrl_c_at_each_statement[taken]",
    ),
    Mutant(
        "interrupted-and-still-at-the-gate",
        "an interruption blocks no name",
        GATE,
        "                left.append(connection.session.end)\n            self.drop()\n",
        "                pass\n            self.drop()\n",
        f"{ENDS}::test_a_task_that_is_cancelled_while_waiting_at_the_gate",
    ),
    Mutant(
        "a-child-closes-its-parents-gate",
        "a lock cannot leak through a fork",
        GATE,
        "            leave_to_parent(connection)\n",
        "            self._connections.drop(connection)\n",
        f"{ENDS}::test_a_forked_child_has_none_of_its_parents",
    ),
    Mutant(
        "past-the-deadline-at-the-gate",
        "every wait has a deadline if asked",
        ACQUIRING,
        "patience = max(0.0, min(patience, self.left))",
        "pass",
        f"{WAITS}::test_the_deadline_is_kept_at_the_gate[threads]",
    ),
    Mutant(
        "unavailable-at-the-gate",
        "a lock is refused to nobody because the gate is no use",
        ACQUIRING,
        "if trouble.fault in (Fault.DISCONNECTED, Fault.CANCELED):",
        "if trouble.fault is not Fault.BUSY:",
        f"{WAITS}::test_no_connection_is_left_for_it",
    ),
    Mutant(
        "a-gate-for-one-try",
        "who does not wait spoils nothing for who does",
        LEASE,
        "gate = None if wait == 0 else self._database.gates.gate(self.name)",
        "gate = self._database.gates.gate(self.name)",
        f"{WAITS}::test_none_for_who_has_no_use_for_it",
    ),
    Mutant(
        "counted-tries-at-the-gate",
        "a policy's tries are made, and counted",
        ACQUIRING,
        "gated = gated and policy.endless",
        "gated = gated",
        f"{WAITS}::test_none_for_who_has_no_use_for_it",
    ),
    Mutant(
        "the-order-is-lost-at-the-gate",
        "waiters are served in the order of arrival where that is asked for",
        ACQUIRING,
        "gated = gated and policy.endless and not fair",
        "gated = gated and policy.endless",
        f"{WAITS}::test_none_for_who_has_no_use_for_it",
    ),
    Mutant(
        "gates-without-end",
        "waiting is cheap",
        GATE,
        "if self.kept >= (2 * GATES if more else GATES):",
        "if False:",
        f"{WAITS}::test_so_many_at_a_time",
    ),
)
