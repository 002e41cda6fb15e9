"""The fault matrix: every statement of every operation, met by every fault.

:mod:`.expected` is the table, as data: it is what the tests demand and what ``docs/faults.md``
publishes. :mod:`.operations` are the operations, :mod:`.site` the server and the way a cell is run.
``python -m tests.faults.matrix`` runs it and prints what it found, and ``python -m tests.golden
matrix`` writes the table into that page.
"""
