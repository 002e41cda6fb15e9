"""Mutants of waiting (promise 10)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

QUEUE, LEAVING = "tests/waiting/test_queue.py", "tests/waiting/test_leaving.py"
PASSING = "tests/waiting/test_passing_on.py"
FAIR, AWAY = "tests/waiting/test_fair.py", "tests/waiting/test_away.py"
STARVING = "tests/waiting/test_starving.py"
MARIAS = "tests/waiting/test_server_wait.py"
MARIA_GRANT = "tests/waiting/test_server_wait_grant.py"
MARIA_ENDS = "tests/waiting/test_server_wait_ends.py"
STARVES = "nobody starves where waiters are not called"
WOKEN = "who waits is called by the database"

NOBODY_KNOWS = "what is not known is said to be unknown"
FOUND = "tests/simulation/test_found.py::test_it_is_mended"

STRANGERS = "tests/waiting/test_strangers.py"
IGNORED = "what strangers say to who waits is nothing"

TURNS = "tests/contract/test_turns.py"
JOINING = "tests/waiting/test_joining.py"

CALLS = (
    Mutant(
        "a-refused-caller-looks-before-it-joins",
        "a waiter joins the queue with the statement after the refused one",
        "acquire.acquire",
        "attempt.joins_next = wait != 0 and",
        "attempt.joins_next = False and",
        f"{JOINING}::test_a_refused_caller_joins_the_queue_without_a_look[threads-postgresql-False]",
    ),
    Mutant(
        "nothing-is-known-of-a-name-that-was-not-joined",
        "a refusal says who holds the name",
        "Polling.rest",
        "self.joins or self.attempt.unseen",
        "self.joins",
        f"{JOINING}::test_a_wait_that_is_too_short_to_join_says_who_holds_the_name"
        "[threads-postgresql-False]",
    ),
    Mutant(
        "a-release-waits-for-those-who-only-ask",
        "what ends or keeps a hold goes before those who only ask",
        "Driver._run",
        "first=type(step.query.command) in commands.FIRST",
        "first=False",
        f"{TURNS}::test_what_ends_a_hold_goes_before_those_who_ask[threads-sqlite]",
    ),
    Mutant(
        "a-full-house-is-taken-for-a-dead-server",
        "a waiter waits until its wait is over",
        "Connections.execute",
        "self._answered = answered = self._runtime.now()",
        "answered = self._runtime.now()",
        f"{TURNS}::test_who_waits_for_a_turn_goes_on_while_the_server_answers[threads-sqlite]",
    ),
    Mutant(
        "strangers-speak-utf-8",
        IGNORED,
        "Psycopg.called",
        'call.extra.decode("ascii", "replace")',
        "call.extra.decode()",
        f"{STRANGERS}::test_bytes_that_are_no_text_are_nothing[threads]",
    ),
    Mutant(
        "strangers-are-translated",
        IGNORED,
        "adapter._OCCUPY",
        "set_config('client_encoding', 'SQL_ASCII', false)",
        "true",
        f"{STRANGERS}::test_bytes_that_are_no_text_are_nothing[threads]",
    ),
    Mutant(
        "looks-whenever-called",
        "who waits looks ten times a second at most",
        "Notifier.wait",
        "if (rest := call.rest(now)) > 0:",
        "if (rest := 0.0) > 0:",
        f"{STRANGERS}::test_called_for_nothing_it_is_looked_at_now_and_then[threads]",
    ),
    Mutant(
        "nobody-is-called",
        WOKEN,
        "queue.call",
        "SELECT {_TOLD}",
        "SELECT NULL",
        f"{PASSING}::test_a_guarded_hold_is_not_passed_on[threads]",
    ),
    Mutant(
        "overtaking",
        "nobody overtakes who waits",
        "postgresql.lease.LeaseStatements._grant",
        "self.is_available(self.earlier)",
        "self.is_available('0')",
        f"{QUEUE}::test_nobody_overtakes",
    ),
    Mutant(
        "overtaking-by-who-had-it",
        "nobody overtakes who waits",
        "postgresql.lease.LeaseStatements._grant_known",
        "waiters IS NULL AND ",
        "",
        f"{QUEUE}::test_nobody_overtakes",
    ),
    Mutant(
        "overtaking-on-mariadb",
        "nobody overtakes who waits",
        "mariadb.lease.LeaseStatements._available",
        "({LAST} + {self.taken_elsewhere})",
        "{self.taken_elsewhere}",
        f"{FAIR}::test_nobody_overtakes_and_nobody_stays[mariadb]",
    ),
    Mutant(
        "mariadb-has-no-user-locks",
        "where nobody is called, one asks and the server wakes the others",
        "ServerWaitStatements.can_wait_in_server",
        "can_wait_in_server = True",
        "can_wait_in_server = False",
        f"{MARIAS}::test_one_asks_and_the_server_wakes_the_others_in_their_order[threads]",
    ),
    Mutant(
        "newcomers-come-first-on-mariadb",
        STARVES,
        "mariadb.lease.LeaseStatements._available",
        "({LAST} + {self.taken_elsewhere})",
        "{LAST}",
        f"{MARIAS}::test_who_only_comes_now_is_held_up_for_a_moment",
    ),
    Mutant(
        "granted-by-halves-on-mariadb",
        "a grant decides once",
        "mariadb.lease.LeaseStatements._grant",
        (
            "LAST_INSERT_ID(fence + 1),\n"
            "    token = %(token)s, owner = %(owner)s, waiters = {rest},\n"
            "    acquired_at = SYSDATE(6), expires_at = {LATER}"
            """{f", {NOTED}" if shares else ""}\"\"\"\n"""
            "return self.take_row(name, changes, free)"
        ),
        (
            "LAST_INSERT_ID(fence + {free}),\n"
            "    token = IF({free}, %(token)s, token), owner = %(owner)s, waiters = {rest},\n"
            "    acquired_at = SYSDATE(6), expires_at = IF({free}, {LATER}, expires_at)"
            """{f", {NOTED}" if shares else ""}\"\"\"\n"""
            'return self.take_row(name, changes, "TRUE")'
        ),
        f"{MARIA_GRANT}::test_who_lets_the_user_lock_go_while_it_is_looked_at",
    ),
    Mutant(
        "one-user-lock-for-all-databases",
        "databases of one server have nothing to do with each other",
        "server_wait.USER_LOCK",
        "CONCAT_WS('/', %(user_lock)s, DATABASE()))\"",
        '%(user_lock)s)"',
        f"{MARIAS}::test_another_database_has_user_locks_of_its_own",
    ),
    Mutant(
        "a-name-given-back-keeps-its-user-lock",
        "who gives a name back lets its user lock go",
        "LeaseStatements.release_and_unlock",
        "DO RELEASE_LOCK({USER_LOCK});",
        "",
        f"{MARIA_ENDS}::test_one_statement_lets_the_name_go_and_its_user_lock",
    ),
    Mutant(
        "fair-waits-in-the-server",
        "waiters are served in the order of arrival where that is asked for",
        "waiting.way_to_wait",
        "can_wait_in_server and policy.endless and not fair",
        "can_wait_in_server and policy.endless",
        f"{MARIAS}::test_none_for_who_keeps_the_order_counts_its_tries_or_does_not_wait",
    ),
    Mutant(
        "counted-tries-wait-in-the-server",
        "a retry policy is kept to",
        "waiting.way_to_wait",
        "can_wait_in_server and policy.endless and not fair",
        "can_wait_in_server and not fair",
        f"{MARIAS}::test_none_for_who_keeps_the_order_counts_its_tries_or_does_not_wait",
    ),
    Mutant(
        "a-stale-user-lock-is-waited-for",
        "whoever died or hangs keeps a free name for a moment at most",
        "ServerWait._patience",
        "patience = min(patience, dialect.grace)",
        "pass",
        f"{MARIAS}::test_a_stale_user_lock_keeps_the_name_from_nobody",
    ),
    Mutant(
        "any-number-of-user-locks-at-once",
        "waiting takes few connections",
        "UserLocks.kept",
        "user_lock.admitted and not user_lock.inherited",
        "user_lock.kept",
        f"{MARIAS}::test_so_many_when_all_come_at_once",
    ),
    Mutant(
        "interrupted-and-still-in-the-server",
        "a waiter that is interrupted leaves no trace",
        "UserLock.run",
        "orphaned.append(connection.session.end)",
        "pass",
        f"{MARIA_ENDS}::test_a_task_that_is_cancelled_while_waiting_in_the_server",
    ),
    Mutant(
        "overtaking-on-sqlite",
        "nobody overtakes who waits",
        "sqlite.lease.LeaseStatements._grant",
        "WHERE {self.is_available(LAST)}",
        "WHERE {self.is_available('0')}",
        f"{FAIR}::test_nobody_overtakes_and_nobody_stays[sqlite]",
    ),
    Mutant(
        "standing-aside",
        "waiters are served in the order of arrival where that is asked for",
        "Polling.stand",
        "look = tired or (self.fair and self.number > 0)",
        "look = False",
        f"{FAIR}::test_in_the_order_of_arrival[mariadb]",
    ),
    Mutant(
        "last-in-first-out",
        "waiters are served in the order of arrival",
        "QueueStatements._join",
        "array_append({_ALIVE}, %(entry)s)",
        "array_prepend(%(entry)s, {_ALIVE})",
        f"{QUEUE}::test_a_release_calls_the_next_in_the_order_of_arrival",
    ),
    Mutant(
        "gives-up-and-stays",
        "a waiter that gives up leaves no trace",
        "acquire._give_up",
        "prevented = yield from leave(dialect, request, deadline.now)",
        "prevented = None",
        f"{QUEUE}::test_who_gives_up_leaves_no_trace_and_takes_no_call_along",
    ),
    Mutant(
        "interrupted-and-stays",
        "a waiter that is interrupted leaves no trace",
        "release.abandon",
        "yield from leave(dialect, request, now)",
        "yield from ()",
        f"{LEAVING}::test_ctrl_c",
    ),
    Mutant(
        "refused-whatever-it-left",
        NOBODY_KNOWS,
        "acquire._give_up",
        "if prevented is not None:",
        "if False:",
        FOUND,
    ),
    Mutant(
        "refused-and-in-the-queue",
        NOBODY_KNOWS,
        "release.leave",
        "return (yield from _left_behind(dialect, request, failure))",
        "return None",
        FOUND,
    ),
    Mutant(
        "refused-and-passed-the-name",
        NOBODY_KNOWS,
        "release._left_behind",
        "if not (yield from _has(dialect, request.name, request.token, now)):",
        "if True:",
        FOUND,
    ),
    Mutant(
        "unreturned-and-forgotten",
        NOBODY_KNOWS,
        "release.return_all",
        "request.unreturned.append(one)",
        "pass",
        FOUND,
    ),
    Mutant(
        "in-the-queue-without-having-joined",
        "what is known is not said to be unknown",
        "Attempt._once",
        "if failure.fault in _ELSEWHERE:",
        "if False:",
        FOUND,
    ),
    Mutant(
        "leaves-if-that-is-to-be-had",
        "a waiter that gives up leaves no trace",
        "release.leave",
        "retry(left, dialect.timing.leaving, now, AWAY | PASSING)",
        "retry(left, 0.0, now, AWAY)",
        f"{LEAVING}::test_while_others_are_at_the_row[threads]",
    ),
    Mutant(
        "a-ghost-that-is-vouched-for",
        "nobody waits for who is not there",
        "release.leave",
        "yield Disown(tuple(request.tickets))",
        "",
        f"{LEAVING}::test_who_cannot_leave_is_disowned[then released-threads]",
    ),
    Mutant(
        "the-dead-keep-newcomers-out",
        "nobody waits for who is not there",
        "QueueStatements.earlier",
        "AS entry WHERE {THERE})",
        "AS entry)",
        f"{LEAVING}::test_who_cannot_leave_is_disowned[released-threads]",
    ),
    Mutant(
        "nobody-queues-behind-a-pooler",
        STARVES,
        "polling.TIRED",
        "TIRED = 0.02",
        "TIRED = 3600.0",
        f"{STARVING}::test_behind_a_pooler",
    ),
    Mutant(
        "as-many-user-locks-for-a-hot-name",
        STARVES,
        "UserLocks.admit",
        "2 * self.limit if user_lock.hot else self.limit",
        "self.limit",
        f"{MARIAS}::test_so_many_when_all_come_at_once",
    ),
    Mutant(
        "neither-in-the-server-nor-in-the-queue",
        STARVES,
        "ServerWait._wait_in_server",
        "self.lock.open = self.lock.open and failure.fault in UNDONE",
        "pass",
        f"{STARVING}::test_who_gets_no_user_lock",
    ),
    Mutant(
        "outranked-for-ever-with-the-user-lock",
        STARVES,
        "ServerWait.queues",
        "return overtaken or self._for_readers or not self.lock.open",
        "return self._for_readers or not self.lock.open",
        f"{STARVING}::test_who_has_the_user_lock_while_others_queue",
    ),
    Mutant(
        "two-tickets-of-one",
        "a waiter has one place in the queue",
        "QueueStatements._join",
        "WHEN {POSITION} IS NULL THEN",
        "WHEN true THEN",
        f"{QUEUE}::test_who_can_be_called_at_last_keeps_its_place_and_no_other[threads]",
    ),
    Mutant(
        "read-by-who-does-not-wait",
        WOKEN,
        "Notifier._stop_reading",
        "if other.waits and not other.woken:",
        "if not other.woken:",
        f"{LEAVING}::test_who_has_a_ticket_and_does_not_wait_is_not_left_to_read",
    ),
    Mutant(
        "the-dead-are-waited-for",
        "a waiter that died is passed over",
        "postgresql.queue.QueueStatements.ahead",
        "AS entry WHERE NOT ({_WITH_ME}) AND {THERE})",
        "AS entry WHERE NOT ({_WITH_ME}))",
        f"{LEAVING}::test_the_dead_cost_nothing_when_a_holder_dies_too",
    ),
    Mutant(
        "an-earlier-version-s-release-keeps-the-name",
        "a released name is free",
        "postgresql.queue.QueueStatements.is_available",
        "token IS NULL AND expires_at > clock_timestamp() OR",
        "",
        f"{LEAVING}::test_released_by_an_earlier_version",
    ),
    Mutant(
        "a-lost-listener-goes-unnoticed",
        WOKEN,
        "Notifier._void",
        "call.over = True",
        "pass",
        f"{QUEUE}::test_a_listener_that_is_lost_is_replaced",
    ),
    Mutant(
        "every-thread-for-itself",
        "many waiters of one process cost one",
        "LocalQueue.enter",
        "first.wake()\nreturn False",
        "return True",
        f"{QUEUE}::test_many_threads_cost_one_waiter",
    ),
    Mutant(
        "an-outage-told-in-turn",
        "an outage is told within the policy, to many who wait too",
        "Driver.run",
        "waiter.alarm()",
        "pass",
        f"{AWAY}::test_an_outage_is_told_to_all_who_wait",
    ),
    Mutant(
        "a-herd-of-listeners",
        "who cannot be called does not try to be each time it looks",
        "Notifier._connect",
        "if self._runtime.now() < self._not_before:",
        "if False:",
        f"{AWAY}::test_who_cannot_listen_does_not_try_again_at_once",
    ),
    Mutant(
        "a-listener-of-the-old-primary",
        WOKEN,
        "Notifier.ticket",
        "if connection.session.server != server:",
        "if False:",
        f"{AWAY}::test_a_listener_of_another_server_is_not_listened_to",
    ),
    Mutant(
        "refused-for-not-being-seen",
        "a lock is refused to nobody because it cannot be seen waiting",
        "Waiter.note",
        "if failure.fault in NEVER:",
        "if failure.fault in NEVER:\n    raise",
        f"{AWAY}::test_no_right_to_be_seen_is_no_refusal",
    ),
    Mutant(
        "a-dead-first",
        "an interruption blocks no name",
        "LocalQueue.enter",
        "deque((weakref.ref(mine),))",
        "deque((lambda: mine,))",
        f"{AWAY}::test_a_place_that_was_never_left_is_not_waited_for",
    ),
    Mutant(
        "an-expiry-that-never-was",
        "why a hold is lost is told truly",
        "inspect.loss_of",
        "if not held.term.over(now - _age(state)):",
        "if False:",
        "tests/contract/test_loss.py::test_released_by_force_and_taken_by_who_waits",
    ),
    Mutant(
        "the-clock-of-who-is-told-late",
        "why a hold is lost is told truly",
        "inspect.loss_of",
        "if not held.term.over(now - _age(state)):",
        "if not held.term.over(now):",
        "tests/protocol/test_losing.py",
    ),
    Mutant(
        "joining-is-a-try-of-its-own",
        "a policy that counts tries counts each once",
        "Attempt._once",
        "return (yield from self._once(ticket, ask))",
        "return False, None",
        "tests/protocol/test_acquire.py",
    ),
)
