"""A soak: workers use leases while faults happen, and the history they wrote is checked.

``python -m tests.soak`` runs it. ``profiles`` has the kinds there are. What the workers of each do
is in the modules of ``worker.WORKERS``, what happens to them in those of ``profiles.PROFILES``.
``yardstick`` measures the machine meanwhile, and ``history`` keeps all of it. ``checker`` judges
that, and ``liveness`` where it is about waiting; they know nothing of how it came about.
"""
