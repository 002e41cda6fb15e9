"""What the simulation has found in dblock: each a schedule that failed."""

from __future__ import annotations

import pytest

from tests.simulation.exploring import replay

FOUND = {
    "a connection that breaks before anything was sent leaves the outcome unknown": (
        "sqlite hand-off: a.select#1+8"
    ),
    "who waits to be called does not hear that a lease will end earlier": (
        "model given-back-later:"
    ),
    "the same, on a real server": "postgresql given-back-later:",
    "a guard that waits does not know that the lease is renewed meanwhile": (
        "sqlite cycle: a.update#1+8"
    ),
    "who waits at the gate of one that is stopped does not see its lease run out": (
        "mariadb three: b.grant#3!pause:9"
    ),
    "who cannot give a lease back tells that it has none, and leaves it": (
        "model give-up: b.grant#1+8 b.pass_on#1!crash"
    ),
    "what was given back arrives late, and frees what was granted since": (
        "sqlite hand-off: a.grant#1<+8 a.release#1!late:0.03"
    ),
    "who is passed a name is told that it has it when its term is over": (
        "model passed-to-who-does-not-renew: b.renew#1<+8"
    ),
    "a dropped handle is renewed, where no connection was to be had when it was acquired": (
        "model dropped-handle: a.grant#1!crash"
    ),
    "the traceback of a failed try keeps a dropped handle alive, and so its lease renewed": (
        "sqlite dropped-handle: a.grant#1!lost"
    ),
    "who is seen waiting stays so where its connection was cut": (
        "model long-work: b.sweep#1!cut:0.2"
    ),
    "who cannot find out that a failover has lost its lease blames others": (
        "model kept: b.select#1!promote:3 a.read_witness#1!given-up:0.5"
    ),
    "who waits for the end of a pause waits on another server, which has one of its own": (
        "model again: a.grant#1!promote:1 a.select#3!promote:3"
    ),
    "who is stopped when it hears of a pause counts that from when it goes on": (
        "model cycle: b.take#1!promote:3 b.read_witness#2!pause:9"
    ),
    "the check of the schema, on the connection that listens, ends a wait that it is no part of": (
        "model tries-beside-waiters: b.grant#1<+8 b.grant#2+8 b.select#2!given-up:0.5"
    ),
    "who has waited in the server when it was lost is told that nobody knows what became of it": (
        "mariadb outage: b.connect#2<+8"
    ),
    "a last try that the server gives up hides that nobody knows what became of one before it": (
        "sqlite read-only: b.grant#1!unanswered b.join#201!given-up:0.5"
    ),
    "the same, where the session of that could be ended": (
        "model read-only: b.take#3!mute b.take#153!given-up:0.5"
    ),
    "a release goes on past its time where a lost session cannot be ended": (
        "model outage: a.select#1+8 b.release#1+8"
    ),
    "an epoch that a standby has not heard of comes again, and its fences with it": (
        "model reader: c.select#1!promote:3 a.begin#1+1.7 a.sweep#1!promote b.begin#1+8 "
        "b.unregister#1!promote:3"
    ),
    "who cannot leave the queue tells that it has not what it is passed on": (
        "postgresql passed-by: b.leave#2<+1.7"
    ),
    "the same, of what was granted and could not be given back": (
        "postgresql counted-tries: a.grant#1+8 a.pass_on#1!promote:3 a.connect#3<+1.7"
    ),
    "the same, beside a version before": (
        "postgresql waited-by-a-version-before: a.grant#1+8 a.pass_on#1!promote:1 a.connect#3<+1.7"
    ),
    "the same, on MariaDB": "mariadb unseen: a.grant#1+8 a.release#1+1.7 a.release#1!crash",
    "a row that others have for long hides that what could not be given back has run out": (
        "mariadb busy-row: a.grant#1<+8 b.locking_select#1!deaf"
    ),
    "who waits for a row that is deleted keeps others from making it, and waits in vain": (
        "mariadb retired-beside-users: a.create#1<+0.05"
    ),
    "a refused caller that can be told by nobody asks in a pause without a rest": (
        "model give-up: b.grant#1!promote:1"
    ),
}


pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("line", FOUND.values(), ids=FOUND)
def test_it_is_fixed(line: str) -> None:
    outcome = replay(line)
    if outcome.violation is not None:
        raise outcome.violation
