"""When to try, wait, settle and give up: no I/O and no clock in here.

A protocol is a generator. It yields a step (:mod:`.steps`), is sent the step's reply or has a
:class:`~.faults.Trouble` thrown in, and returns its outcome. :mod:`dblock.driver` performs the
steps; anything else that can perform them, an event loop say, can drive the same protocols.
"""
