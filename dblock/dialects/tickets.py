"""Tickets: what a waiter stands in a name's queue with, in the name's row."""

from __future__ import annotations

#: Characters of a ticket. Who looks for itself has one that begins with :data:`UNCALLED`.
TICKET = 24
#: So many of them are told to who is called; the rest is a secret of its waiter and the lock table.
NUMBER = 12
UNCALLED = "00000000"
