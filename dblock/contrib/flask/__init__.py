"""Locks for Flask applications, in Flask-SQLAlchemy's database or in the database of a URL.

>>> from dblock.contrib.flask import DBLock
>>> locks = DBLock()
>>> locks.init_app(app)                                         # doctest: +SKIP
>>> with locks.lease("report", ttl=30): ...                     # doctest: +SKIP
"""

from __future__ import annotations

from .extension import DBLock

__all__ = ["DBLock"]
