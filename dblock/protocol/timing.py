"""The protocol's own intervals: how long waiters and observers wait between two statements."""

from __future__ import annotations

from dataclasses import dataclass

from .term import FIRST_TERM


@dataclass(frozen=True, slots=True)
class Timing:
    """The intervals of one set of locks, in seconds.

    Users cannot set them. They belong to the statements, so that a test can change them for the
    locks that it makes.
    """

    #: A free name is reserved this long for each waiter in its queue, before the next waiter may
    #: take it.
    grace: float = 0.4
    #: A waiter that waits for a notification polls at this interval, if it is the first or second
    #: in its queue. The interval is the first term of a passed-on hold: so the second waiter
    #: notices in time that the first does not answer. Waiters further back poll more rarely, but
    #: at least every ``poll_max``.
    poll: float = FIRST_TERM
    poll_max: float = 10.0
    #: The longest single wait in the server.
    server_wait: float = 2.5
    #: A waiter that holds nothing registers after this time. In a long queue on a busy machine
    #: waits take a while, and registering would delay them further.
    visible_after: float = 1.0
    #: A waiter that holds something registers and checks for a deadlock after this time; then it
    #: checks at growing intervals, at most ``look_max``.
    look: float = 0.4
    look_max: float = 5.0
    #: An observer that is notified of changes also polls at this interval.
    observe: float = 5.0
    #: How long a waiter retries to leave the queue while others have the row locked; and then how
    #: long it retries to release the name that it may have been granted. Each time counts from the
    #: first try. dblock also tries this long to end a session when the caller's deadline is over.
    #: The reply to a try that began in time may arrive later.
    leaving: float = 1.0
