"""Tickets: a waiter's entry in the queue of a name, in the name's row."""

from __future__ import annotations

#: Characters of a ticket. A waiter that cannot be notified, and polls, has one that begins with
#: :data:`UNCALLED`.
TICKET = 24
#: Characters at its beginning that are public: a notification contains them. The rest is a secret
#: of the waiter and the lock table.
NUMBER = 12
UNCALLED = "00000000"
