"""Where the cases run: in threads, and in asyncio, from one source.

A case is written for :class:`dblock.Locks`. In the world of threads it gets them; in that of
asyncio it gets :class:`dblock.aio.AsyncLocks` behind the same names, and each of its threads is a
task there.
"""
