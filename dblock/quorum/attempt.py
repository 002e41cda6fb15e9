"""One attempt at all members, under one token, until every reply is in.

::

    deciding ── a majority ──> kept ── a later grant is stamped, and kept too ──┐
        │                                                                       v
        └── no majority ───────────────────────────────────────────────────> ended
                              the thread that gets a later grant releases it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from ..errors import DBLockError, LockLost, OutcomeUnknown, Unavailable
from ..io.process_lock import lock
from ..protocol import release
from ..protocol.ballot import (
    Ballot,
    Holding,
    Pending,
    Split,
    Stamping,
    Unreachable,
    Verdict,
    stamp,
    vote,
)
from ..protocol.lease import Held, LeaseRequest, Refused, ReleaseRequest
from .fan import Mailbox

if TYPE_CHECKING:
    from .members import Members

#: What a member's work posts: its vote, the fence of a stamp, or the error.
Outcome = Held | Refused | int | DBLockError


class QuorumAttempt:
    """The progress of one attempt, and then the hold at the members that granted it.

    ``requests`` has a request for each member, all with one token. After a release there, the
    request has another token.
    """

    def __init__(self, members: Members, request: Callable[[], LeaseRequest], listed: str) -> None:
        self._members = members
        self._listed = listed
        self.ballot = Ballot(len(members.databases))
        self.requests = [request() for _ in members.databases]
        self.token = self.requests[0].token
        self._mailbox: Mailbox[Outcome] = Mailbox(members.runtime)
        #: Its state in the diagram above. While it decides, the caller reads the mailbox.
        self.state: Literal["deciding", "kept", "ended"] = "deciding"
        #: At each member, how much work has not ended: a vote, a stamp, a grant's release.
        self._work: Counter[int] = Counter()
        #: The outcomes of the releases: None, or why the member may hold the token still.
        self._released: dict[int, DBLockError | None] = {}
        #: At each member, how many releases may have been executed.
        self._unsettled: Counter[int] = Counter()

    @property
    def name(self) -> str:
        return self.requests[0].name

    @property
    def busy(self) -> set[int]:
        """The members at which a vote, a stamp or a release is under way. An outcome in the mailbox
        does not count."""
        with lock:
            return set(+self._work)

    def decide(self) -> Holding | Split | Unreachable:
        """Ask the members that have not granted the name for their votes; return the verdict.

        A busy member is not asked: the vote would find the token that an earlier statement may
        release later. The outcome of its work counts when it comes. No verdict waits for it, nor
        for a member that was silent the last time, unless there is no other. The silence of a
        member costs :attr:`.Timeouts.connect` once.
        """
        members, now = self._members, self._members.runtime.now
        with lock:  # at once: an outcome that comes between the two would be in neither
            unread, busy = self._mailbox.rest(), self.busy
        for each in unread:
            self._note(*each)
        asked = self.ballot.begin_again()
        busy = asked & (busy | self.busy)
        slow = asked & members.suspects | busy
        for number in sorted(asked):
            if number in slow:
                self.ballot.failed(number, None)
            if number not in busy:
                members.writes(number, {self.token: self.requests[number].ttl})
                self._begin(number, partial(self._vote, number))
        until = now() + members.timeouts.connect
        while True:
            verdict: Verdict = self.ballot.verdict()
            if isinstance(verdict, Stamping):
                for number in verdict.members:
                    self._begin(number, partial(self._stamp, number, verdict.fence))
                continue
            waits = isinstance(verdict, Pending) or (isinstance(verdict, Unreachable) and slow)
            if not waits:
                assert not isinstance(verdict, Pending)
                return verdict
            letter = self._mailbox.next(until - now())
            if letter is not None:
                slow.discard(letter[0])
                self._note(*letter)
                continue
            silent = self.ballot.unanswered | slow
            slow = set()
            members.suspects |= silent
            for number in silent:
                self.ballot.failed(number, members.silent(number))

    def _note(self, number: int, outcome: Outcome) -> None:
        """Count an outcome."""
        if isinstance(outcome, Held):
            self.ballot.granted(number, outcome)
        elif isinstance(outcome, Refused):
            self.ballot.refused(number, outcome)
        elif isinstance(outcome, int):
            if number not in self.ballot.grants:  # it was silent, and is not counted any more
                self._begin(number, partial(self._return, number))
            self.ballot.stamped(number, outcome)
        else:
            self.ballot.failed(number, outcome)

    def keep(self) -> None:
        """Keep the hold: the thread that gets a later grant stamps it."""
        with lock:
            self.state = "kept"
            rest = self._mailbox.rest()
        for number, outcome in rest:
            self._begin(number, partial(self._deliver, number, outcome))

    # --- the work at one member --------------------------------------------------------------

    def _begin(self, number: int, work: Callable[[], None]) -> None:
        """Begin work at a member. At its end it calls :meth:`_deliver` or :meth:`_end_work`."""
        with lock:
            self._work[number] += 1
        self._members.fan.begin(number, work)

    def _end_work(self, number: int) -> None:
        with lock:
            self._work[number] -= 1

    def _vote(self, number: int) -> None:
        members, request = self._members, self.requests[number]
        outcome: Outcome = Refused(None)
        if self.state != "ended":  # it may have waited for a thread
            database = members.databases[number]
            exchange = database.exchange(request.name, wait=0.0)
            procedure = vote(exchange, request, self._listed)
            outcome = members.attempt(partial(database.run, procedure))
            members.heard(number, outcome)
            if isinstance(outcome, Refused):
                self._look_into(outcome)
            if isinstance(outcome, Held) and request.token != self.token:
                # The reply to the first try came too late, so the vote has another token.
                self._give_back(number)
                outcome = Refused(None)
        members.wrote(number, {self.token: request.ttl})
        self._deliver(number, outcome)

    def _stamp(self, number: int, fence: int) -> None:
        outcome = self._stamped(number, fence)
        if not isinstance(outcome, int):
            self._give_back(number)  # no verdict counts a grant without its stamp
        self._deliver(number, outcome)

    def _return(self, number: int) -> None:
        self._give_back(number)
        self._end_work(number)

    def _stamped(self, number: int, fence: int) -> Outcome:
        """Stamp a grant; return its fence, or a refusal if the member does not vote."""
        members, request = self._members, self.requests[number]
        database = members.databases[number]
        procedure = stamp(database.exchange(request.name, wait=0.0), request, fence, self._listed)
        done = members.attempt(partial(database.run, procedure))
        if isinstance(done, DBLockError):
            return done
        if done:
            return fence
        self._look_into(Refused(None))
        return Refused(None)

    def _look_into(self, refused: Refused) -> None:
        """Let the next attempt look at the members if one has refused a free name: it may not vote.
        Its refusals may always come after the verdict of the others."""
        if not refused.pause and (refused.state is None or not refused.state.held):
            self._members.records.look_soon()

    def _deliver(self, number: int, outcome: Outcome) -> None:
        with lock:
            if self.state == "deciding":
                self._work[number] -= 1
                self._mailbox.put(number, outcome)
                return
        self._late(number, outcome)
        self._end_work(number)

    def _late(self, number: int, outcome: Outcome) -> None:
        """Act on an outcome that came after the verdict. The caller is at the member."""
        if isinstance(outcome, Held):
            fence = self.ballot.fence or outcome.fence
            behind = outcome.fence < fence and self.state != "ended"
            if behind and self._stamped(number, fence) == fence:
                outcome = outcome._replace(fence=fence)
            with lock:
                if self.state != "ended" and outcome.fence >= fence:
                    self.ballot.granted(number, outcome)
                    return
            self._give_back(number)
        elif isinstance(outcome, int):
            with lock:
                counted = self.state != "ended" and number in self.ballot.grants
            if not counted:
                self._give_back(number)
        elif isinstance(outcome, Refused):
            with lock:
                self.ballot.refused(number, outcome)
        else:
            with lock:  # a grant whose stamp has failed is given back
                self.ballot.failed(number, outcome)
            if isinstance(outcome, OutcomeUnknown):
                self._give_back(number)

    def _give_back(self, number: int) -> None:
        members, request = self._members, self.requests[number]
        database = members.databases[number]
        outcome = self._released[number] = members.attempt(
            lambda: database.run(release.give_back(database.exchange(request.name), request))
        )
        members.heard(number, outcome)

    # --- the end -----------------------------------------------------------------------------

    def _end(self) -> tuple[dict[int, Held], dict[int, Outcome | None]]:
        """Hold the token no more. Return the grants; and of the other members the failures, and the
        outcomes that nobody has read."""
        with lock:
            self.state = "ended"
            return dict(self.ballot.grants), self.ballot.failures | dict(self._mailbox.rest())

    def abandon(self) -> None:
        """Give back what was granted, and wait until that is done, or for a member's silence."""
        grants, others = self._end()
        granted = {number for number, one in others.items() if isinstance(one, Held | int)}
        for number, failure in others.items():
            if isinstance(failure, OutcomeUnknown):  # it may hold the token; nobody waits for it
                self._members.fan.begin(number, partial(self._give_back, number))
        self._finish(granted | grants.keys(), self._give_back)

    def release(self) -> tuple[list[DBLockError | None], int]:
        """Release the hold at each member that granted it; return when a majority has answered.

        Return the outcome of each of these members, None or the error; and how many others do not
        have the token: they refused it, or a thread that got a late grant has released it there.
        """
        members = self._members
        grants, others = self._end()
        grants |= {number: one for number, one in others.items() if isinstance(one, Held)}
        for number in grants:
            self._released.pop(number, None)

        def end(number: int) -> None:
            database, request = members.databases[number], self.requests[number]
            exchange = database.exchange(request.name)
            with lock:
                in_doubt = self._unsettled[number] > 0
                self._unsettled[number] += 1
            ending = ReleaseRequest(request.name, self.token, grants[number], in_doubt=in_doubt)
            outcome = self._released[number] = members.attempt(
                lambda: database.run(release.release(exchange, ending))
            )
            if isinstance(outcome, Unavailable):  # nothing was executed there
                with lock:
                    self._unsettled[number] -= 1
            members.heard(number, outcome)

        def told() -> tuple[list[DBLockError | None], int]:
            with lock:
                released = dict(self._released)
                refused = self.ballot.refusals.keys() - released.keys()
            free = {number for number, one in released.items() if one is None} | refused
            outcomes = [released.get(number, members.silent(number)) for number in sorted(grants)]
            return outcomes, len(free - grants.keys())

        def decided(answers_due: bool) -> bool:
            outcomes, free = told()
            good = sum(outcome is None for outcome in outcomes)
            lost = sum(isinstance(outcome, LockLost) for outcome in outcomes)
            if good >= members.majority or lost > len(grants) - members.majority:
                return True
            return not answers_due and good + free >= members.majority

        self._finish(set(grants), end, decided)
        return told()

    def _finish(
        self,
        numbers: set[int],
        work: Callable[[int], None],
        decided: Callable[[bool], bool] = lambda answers_due: not answers_due,
    ) -> None:
        """Do the last work at some members, and wait for it; and for busy members, whose own work
        gives back what they grant. Stop when ``decided`` says so: it is told whether a member is
        left that may soon answer. Without it, stop when there is none."""
        members = self._members
        done: Mailbox[None] = Mailbox(members.runtime)

        def finish(number: int) -> None:
            work(number)
            done.put(number, None)

        left = set(numbers)
        for number in sorted(numbers):
            members.fan.begin(number, partial(finish, number))
        until = members.runtime.now() + members.timeouts.connect
        while rest := left | self.busy:
            if decided(not rest <= members.suspects):
                break
            came = done.next(min(0.02, until - members.runtime.now()))
            if came is not None:
                left.discard(came[0])
            elif members.runtime.now() >= until:
                members.suspects |= rest
                break
