"""The protocol's own times: after how long anybody looks, tells, or gives up."""

from __future__ import annotations

from dataclasses import dataclass

from .term import FIRST_TERM


@dataclass(frozen=True, slots=True)
class Timing:
    """How long who waits for a lock does what, in seconds.

    No user sets any of it. It comes with the statements, so that a test can have other ones for
    the locks that it makes.
    """

    #: A free name is kept so long for each one in its queue, before the next may have it.
    grace: float = 0.4
    #: Between two looks of one who waits to be told, if it is the first or the second: as often as
    #: the first term of one who does not answer. Those further back look less often, and this
    #: often at least.
    poll: float = FIRST_TERM
    poll_max: float = 10.0
    #: In the server is waited so long in one go.
    server_wait: float = 2.5
    #: Before others can see who waits and holds nothing: on a busy machine a long queue takes a
    #: while, and has no time for that.
    visible_after: float = 1.0
    #: Before the first look for a cycle of one who holds something, which others see from then on;
    #: between two looks, and that at most.
    look: float = 0.4
    look_max: float = 5.0
    #: Between two looks of one who observes a leader and is called when there is something to see.
    observe: float = 5.0
    #: For how long a waiter tries to leave the queue where others are at the row, and again for how
    #: long it tries to give back what it may have got, each from when it first asks. Also for how
    #: long dblock tries to end a session where there is no time left. The answer to a try that
    #: began in time may come later.
    leaving: float = 1.0
