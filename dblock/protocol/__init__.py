"""When to try, wait, settle and give up: no I/O and no clock in here.

A procedure is a generator. It yields a step (:mod:`.steps`), is sent the step's reply or has a
:class:`~.faults.StatementError` thrown in, and returns its outcome. :mod:`dblock.io.driver` does
them; a simulation, or anything else that can, may do the same for the same procedures.
"""
