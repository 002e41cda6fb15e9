"""The driver of a Django connection."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from ...dialects import Adapter
from ...dialects.borrowed_driver import BorrowedDriver


def driver_of(wrapper: BaseDatabaseWrapper, adapter: Adapter) -> BorrowedDriver:
    """Return the driver of a connection. Raises ValueError if dblock does not know it."""
    module: Any = getattr(wrapper, "Database", None)
    package = getattr(module, "__name__", wrapper.vendor).partition(".")[0]
    found = adapter.borrowed(package)
    if found is not None:
        return found
    known = ", ".join(driver.package for driver in adapter.borrowable)
    raise ValueError(f"dblock cannot join a transaction of the driver {package}; use {known}")
