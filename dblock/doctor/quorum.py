"""The doctor of a quorum: whether each member votes, and each member's own set-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DBLockError
from . import examine
from .finding import Finding, note, ok, wrong

if TYPE_CHECKING:
    from ..quorum.members import MemberStatus
    from ..quorum.quorum import Quorum

__all__ = ["examine_members"]


def examine_members(quorum: Quorum) -> list[list[Finding]]:
    """Check the databases of a quorum; return each member's findings, in the order of its targets.

    It changes nothing. A member that does not answer is a finding. Raises Unavailable if no
    majority answers, and ValueError if the databases are not the members of one quorum.
    """
    found = []
    for status, locks in zip(quorum.check(), quorum._made, strict=True):
        findings = [_vote(status)]
        try:
            findings += examine(locks)
        except DBLockError as error:
            if status.error is None:  # it answered a moment ago
                findings = [_vote(status._replace(state="away", error=error))]
        found.append(findings)
    return found


def _vote(status: MemberStatus) -> Finding:
    """Return the finding about a member's part in the quorum."""
    if status.state == "votes":
        return ok("vote", "it votes")
    if status.state == "away":
        return wrong(
            "vote",
            f"it cannot be asked: {status.error}",
            "the quorum tolerates the failure of one database less",
            "fix that error, and run the doctor again",
        )
    if status.state == "new":
        return note(
            "vote",
            "no process has used this quorum yet",
            "the first use needs all its databases, which record the list of them",
            "take a lease once, while all databases answer",
        )
    left = f", for {status.seconds:.1f} s more" if status.seconds else ""
    return note(
        "vote",
        f"it pauses after a restart or a restored backup{left}",
        "until it votes again, the quorum tolerates the failure of one database less",
        "the next lease that is taken after the pause lets it vote, if a majority of the other "
        "databases answers",
    )
