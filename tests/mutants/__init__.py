"""Faults planted in dblock, one at a time, each of which a named test has to notice.

``python -m tests.mutants`` plants and tests them all; ``-k NAME`` some of them. ``--tests-of NAME``
prints which tests guard a part of dblock.
"""
