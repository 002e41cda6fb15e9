"""Threads under a scheduler that decides, at each line of dblock's, which of them goes on.

See :mod:`.scheduler` for how, and CONTRIBUTING for why no library serves.
"""
