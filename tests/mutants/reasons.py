"""Why no schedule of the simulation can show a mutant, as far as several mutants share a reason."""

from __future__ import annotations

DRIVER = "the driver and its sockets, in whose place the simulation is"
PLPGSQL = "PL/pgSQL in the server, which the simulation does not run"
MIGRATIONS = "the lock of migrations, which are not simulated"
COUNTERS = "counters, which are not simulated"
CLUSTER = "a cluster, of which the simulation has one server"
LOOK_ALIKE = "a server that only looks like the real one"
TWO_DATABASES = (
    "a second database, or a second place in one, which no scenario has; the contract's tests do"
)
TWO_KINDS = "two kinds of locks under one name, which no scenario mixes; the contract's tests do"
SETTING = "a setting that a server, a role or a session may have"
ENCODING = "an encoding: bytes and texts, not what happens when"
TEXT = "a text that people read"
COST = "a cost: how much is written, synced, read or asked"
WHICH_ERROR = (
    "which of two errors the caller gets where nothing can be known; the tests of faults tell"
)
ORDER_OF_WAITERS = "in which order waiters get a name; the contract's tests tell"
READERS_POLL = "readers that are not notified poll after a while; the contract's tests tell"
GUARDED_SLOT = "a slot whose holder has expired, and guards it yet"
OPERATOR = "a condition on an operator's release, which no scenario gives; the contract's tests do"
BY_HAND = "what an operator does by hand to the record of runs; a test of the contract tells"
ROW_LOCK = "between the snapshot of one statement and its lock of the row"
