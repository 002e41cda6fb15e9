"""Mutants of waiting (promise 10)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CALLING = "dblock/dialects/calling.py"
PG, WAITING = "dblock/dialects/postgresql.py", "dblock/waiting.py"
ACQUIRING = "dblock/protocol/acquiring.py"
LEASING = "dblock/protocol/leasing.py"
QUEUE, LEAVING = "tests/waiting/test_queue.py", "tests/waiting/test_leaving.py"
FAIR, AWAY = "tests/waiting/test_fair.py", "tests/waiting/test_away.py"
WOKEN = "who waits is called by the database"

CALLS = (
    Mutant(
        "nobody-is-called",
        WOKEN,
        PG,
        'RETURNING {CALL}, {LAZY}"""\n',
        'RETURNING {LAZY}"""\n',
        f"{QUEUE}::test_no_call_is_lost",
    ),
    Mutant(
        "the-dead-are-called",
        "a waiter that died is passed over",
        PG,
        "waiters = {ALIVE}",
        "waiters = l.waiters",
        f"{QUEUE}::test_a_waiter_that_died_is_passed_over",
    ),
    Mutant(
        "overtaking",
        "nobody overtakes who waits",
        PG,
        "AND {self.turn(self.earlier)}",
        "AND {self.turn('0')}",
        f"{QUEUE}::test_nobody_overtakes",
    ),
    Mutant(
        "overtaking-on-mariadb",
        "nobody overtakes who waits",
        "dblock/dialects/mariadb.py",
        "{self._grant(self.turn(_LAST), ",
        "{self._grant(self.turn('0'), ",
        f"{FAIR}::test_nobody_overtakes_and_nobody_stays[mariadb]",
    ),
    Mutant(
        "overtaking-on-sqlite",
        "nobody overtakes who waits",
        "dblock/dialects/sqlite.py",
        "WHERE {self.turn(_LAST)}",
        "WHERE {self.turn('0')}",
        f"{FAIR}::test_nobody_overtakes_and_nobody_stays[sqlite]",
    ),
    Mutant(
        "standing-aside",
        "waiters are served in the order of arrival where that is asked for",
        ACQUIRING,
        "look = tired or (self.fair and self.number > 0)",
        "look = tired",
        f"{FAIR}::test_in_the_order_of_arrival[mariadb]",
    ),
    Mutant(
        "last-in-first-out",
        "waiters are served in the order of arrival",
        CALLING,
        "array_append({ALIVE}, %(ticket)s)",
        "array_prepend(%(ticket)s, {ALIVE})",
        f"{QUEUE}::test_a_release_calls_the_next_in_the_order_of_arrival",
    ),
    Mutant(
        "gives-up-and-stays",
        "a waiter that gives up leaves no trace",
        ACQUIRING,
        "            yield from leave(self.dialect, self.claim.name, ticket, self.now)\n",
        "            yield from ()\n",
        f"{QUEUE}::test_who_gives_up_leaves_no_trace_and_takes_no_call_along",
    ),
    Mutant(
        "interrupted-and-stays",
        "a waiter that is interrupted leaves no trace",
        LEASING,
        "        yield from leave(dialect, claim.name, ticket, now)\n",
        "        yield from ()\n",
        f"{LEAVING}::test_ctrl_c",
    ),
    Mutant(
        "read-by-who-does-not-wait",
        WOKEN,
        WAITING,
        "if other.waits and not other.woken:",
        "if not other.woken:",
        f"{LEAVING}::test_who_has_a_ticket_and_does_not_wait_is_not_left_to_read",
    ),
    Mutant(
        "the-dead-are-waited-for",
        "a waiter that died is passed over",
        CALLING,
        "AS ticket\n            WHERE {_LISTENS})",
        "AS ticket)",
        f"{LEAVING}::test_the_dead_cost_nothing_when_a_holder_dies_too",
    ),
    Mutant(
        "joining-locks-like-a-grant",
        "who waits disturbs no guard",
        CALLING,
        "FOR NO KEY UPDATE\n            ), {self._joined}",
        "FOR UPDATE\n            ), {self._joined}",
        f"{LEAVING}::test_who_joins_disturbs_no_guard[after-READ COMMITTED]",
    ),
    Mutant(
        "an-earlier-version-s-release-keeps-the-name",
        "a released name is free",
        CALLING,
        "OR token IS NULL AND expires_at > clock_timestamp() ",
        "",
        f"{LEAVING}::test_released_by_an_earlier_version",
    ),
    Mutant(
        "a-lost-listener-goes-unnoticed",
        WOKEN,
        WAITING,
        "call.over = True",
        "pass",
        f"{QUEUE}::test_a_listener_that_is_lost_is_replaced",
    ),
    Mutant(
        "every-thread-for-itself",
        "many waiters of one process cost one",
        WAITING,
        "return first is mine",
        "return True",
        f"{QUEUE}::test_many_threads_cost_one_waiter",
    ),
    Mutant(
        "an-outage-told-in-turn",
        "an outage is told within the policy, to many who wait too",
        "dblock/driver.py",
        "                spot.alarm()\n",
        "                pass\n",
        f"{AWAY}::test_an_outage_is_told_to_all_who_wait",
    ),
    Mutant(
        "a-herd-of-listeners",
        "who cannot be called does not try to be each time it looks",
        WAITING,
        "or clock.now() < self._not_before:",
        "or False:",
        f"{AWAY}::test_who_cannot_listen_does_not_try_again_at_once",
    ),
    Mutant(
        "a-listener-of-the-old-primary",
        WOKEN,
        WAITING,
        "if connection.session.server != server:",
        "if False:",
        f"{AWAY}::test_a_listener_of_another_server_is_not_listened_to",
    ),
    Mutant(
        "refused-for-not-being-seen",
        "a lock is refused to nobody because it cannot be seen waiting",
        "dblock/protocol/registering.py",
        "if trouble.fault in NEVER:",
        "if trouble.fault in NEVER:\n                raise",
        f"{AWAY}::test_no_right_to_be_seen_is_no_refusal",
    ),
    Mutant(
        "a-dead-first",
        "an interruption blocks no name",
        WAITING,
        "places.append(weakref.ref(mine))",
        "places.append(lambda: mine)",
        f"{AWAY}::test_a_place_that_was_never_left_is_not_waited_for",
    ),
    Mutant(
        "joining-is-a-try-of-its-own",
        "a policy that counts tries counts each once",
        ACQUIRING,
        "return (yield from self._try())",
        "return (yield from self.once())",
        "tests/protocol/test_acquiring.py",
    ),
)
