"""When to try, wait, settle and give up, without I/O and without a clock.

A procedure is a generator. It yields a step (:mod:`.steps`), receives the step's reply or a
:class:`~.faults.StatementError`, and returns its outcome. :mod:`dblock.io.driver` executes the
steps; a simulation can execute the same procedures.
"""
