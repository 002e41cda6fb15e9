"""Mutants of a majority of databases: what makes two holders, or a fence twice."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.reasons import COST

ELECTION, REVIEWED = "tests/quorum/test_election.py", "tests/quorum/test_found.py"
NO_ELECTIONS = "the simulation has no elections of a quorum"
SLOW = "a member that is slow for longer than a simulated one"
BALLOT, MEMBERSHIP = "tests/quorum/test_ballot.py", "tests/quorum/test_membership.py"
SIMULATED = "tests/simulation/test_quorum.py::test_nothing_is_violated"
GROW = "fences grow from hold to hold, whichever majority grants"
ONE = "no two majorities have a name at the same time"
FORGETS = "a member that has forgotten votes after a pause, above the others' fences"

QUORUM = (
    Mutant(
        "quorum-without-stamp",
        GROW,
        "Ballot.verdict",
        "if held.fence >= fence and member not in self.unproven",
        "if member not in self.unproven",
        f"{BALLOT}::test_a_smaller_fence_is_stamped_before_it_counts",
        dies_in="sqlite quorum-away:",
    ),
    Mutant(
        "quorum-stamped-on-one",
        GROW,
        "Ballot.verdict",
        "if len(good) >= needed:",
        "if good:",
        f"{BALLOT}::test_a_smaller_fence_is_stamped_before_it_counts",
        dies_in="sqlite quorum-away:",
    ),
    Mutant(
        "quorum-expires-early",
        "a hold is believed no longer than a majority has it",
        "Ballot.verdict",
        "first = min(good,",
        "first = max(good,",
        f"{BALLOT}::test_the_term_is_the_one_that_ends_first",
        dies_in="sqlite quorum-handed-over: a.m0.release#1+1.7",
    ),
    Mutant(
        "quorum-restored-without-cure",
        FORGETS,
        "dialects.members.MemberStatements.votes",
        "AND v.written_at <= {self.clock} AND v.value = {self.record}",
        "",
        f"{SIMULATED}[quorum-restored]",
        dies_in="sqlite quorum-restored:",
    ),
    Mutant(
        "quorum-restored-without-pause",
        FORGETS,
        "membership.pausing",
        ", pause=longest / 1000",
        "",
        f"{MEMBERSHIP}::test_a_member_that_was_started_again_pauses_for_the_longest_ttl_of_all",
        dies_in="sqlite quorum-restored:",
    ),
    Mutant(
        "quorum-restored-without-reading",
        FORGETS,
        "membership.next_step",
        "fence=max([member.fence, *(one.fence for one in others)])",
        "fence=member.fence",
        f"{MEMBERSHIP}::test_it_votes_after_the_pause_above_the_others_fences",
        dies_in="sqlite quorum-restored-alone:",
    ),
    Mutant(
        "quorum-restored-after-reading-too-few",
        FORGETS,
        "membership.next_step",
        "if voting < majority(len(views)) and",
        "if voting < majority(len(views)) - 1 and",
        f"{MEMBERSHIP}::test_it_votes_after_the_pause_above_the_others_fences",
        dies_in="sqlite quorum-restored-alone:",
    ),
    Mutant(
        "quorum-renewed-by-a-minority",
        ONE,
        "quorum.members.Members._renewed",
        "for one in outcomes) >= self.majority",
        "for one in outcomes) >= 1",
        f"{SIMULATED}[quorum-cut-off]",
        dies_in="sqlite quorum-cut-off:",
    ),
    Mutant(
        "quorum-value-at-one",
        "a value that a leader has proclaimed is at a majority",
        "QuorumLeadership._write_value",
        "if written >= members.majority:",
        "if written:",
        f"{ELECTION}::test_a_majority_has_the_newest_value",
        beyond=NO_ELECTIONS,
    ),
    Mutant(
        "quorum-release-forgets-late-votes",
        "a release is good when a majority has the token no more",
        "QuorumAttempt.release",
        "sorted(grants.keys() | self._released.keys())",
        "sorted(grants)",
        "tests/quorum/test_found.py::test_a_vote_that_is_given_back_late_counts_for_the_release",
        beyond="no scenario has a late vote beside a silent member",
    ),
    Mutant(
        "quorum-value-by-the-members-fence",
        "a member whose fence is larger has a leader's value too",
        "elections.ElectionStatements.proven",
        '{self.parameter("fence")}, {self.parameter("value")}',
        'fence, {self.parameter("value")}',
        f"{ELECTION}::test_a_member_with_a_larger_fence_has_the_value_too[sqlite]",
        beyond=NO_ELECTIONS,
    ),
    Mutant(
        "quorum-value-of-any-number",
        "observers see a leader's newest value, whichever majority they ask",
        "election.leading",
        "= max(own,",
        "= min(own,",
        f"{ELECTION}::test_its_value_is_the_newest",
        beyond=NO_ELECTIONS,
    ),
    Mutant(
        "quorum-waits-for-a-silent-member-again",
        "a database that is silent costs one wait",
        "records.Records.settle",
        "members.ask(list(changes), partial(self._rewrite, changes))",
        "members.ask_all(lambda number: number in changes and self._rewrite(changes, number))",
        "tests/quorum/test_members.py::test_a_longer_ttl_waits_for_no_silent_member_again",
        beyond=COST,
    ),
    Mutant(
        "quorum-value-of-another-term",
        "observers see the value of the present leader",
        "election.leading",
        "for writer, number, value in values if writer == token",
        "for writer, number, value in values",
        f"{ELECTION}::test_its_value_is_the_newest",
        beyond=NO_ELECTIONS,
    ),
    Mutant(
        "quorum-leader-with-a-raised-fence",
        "observers see the fence of the present leader",
        "election.leading",
        "[min(len(rows), majority) - 1]",
        "[0]",
        f"{REVIEWED}::test_a_leader_keeps_its_value_where_the_fences_were_raised",
        beyond=NO_ELECTIONS,
    ),
    Mutant(
        "quorum-asks-for-a-second-vote",
        ONE,
        "QuorumAttempt.decide",
        "if number not in voting:",
        "if True:",
        f"{REVIEWED}::test_a_member_that_has_not_answered_is_not_asked_for_a_second_vote",
        beyond=SLOW,
    ),
    Mutant(
        "quorum-renewal-cut-by-an-earlier-one",
        ONE,
        "quorum.members.Members.renew_all",
        "inf) < one.renewal.ttl",
        "inf) < 0.0",
        f"{REVIEWED}::test_a_shorter_renewal_that_is_late_does_not_cut_a_longer_one",
        beyond=SLOW,
    ),
    Mutant(
        "quorum-ends-with-no-policy",
        "a retry policy means the same as for one database",
        "QuorumTaking._try_once",
        "return first",
        "return Split(first)",
        f"{REVIEWED}::test_a_policy_that_ends_ends_the_wait",
        beyond="a retry policy, which the simulated clients have none of",
    ),
    Mutant(
        "quorum-record-that-nobody-could-write",
        "a database that cannot vote is told",
        "records.Records.settle",
        "if failed and missing > 0:",
        "if False:",
        f"{REVIEWED}::test_a_member_that_cannot_write_its_record_is_told",
        beyond="a right that is missing, or a full disk",
    ),
)
