"""A soak: workers use leases while faults happen, and the history they wrote is checked.

``python -m tests.soak`` runs it. ``worker`` and ``nemesis`` make the history, ``history`` keeps it,
``checker`` judges it and knows nothing of how it came about.
"""
