"""The production protocol under a scheduler that decides everything.

Each client's code runs as it is, in a greenlet; every request, reply, timer and wake-up is an event
of a :class:`.loop.Loop` in virtual time. A :class:`.schedule.Schedule` says what differs from the
plain course of events: which event comes later, and where what fails. The same schedule gives the
same run, so a failure is one line to paste into a test.

Deterministic simulation as in FoundationDB (Zhou et al., SIGMOD 2021); bounded deviations from one
deterministic course as in delay-bounded scheduling (Emmi et al., POPL 2011).
"""
