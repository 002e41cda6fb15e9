"""Which driver a connection of Django's is of."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from ...dialects import Adapter
from ...dialects.borrowed_driver import BorrowedDriver


def driver_of(wrapper: BaseDatabaseWrapper, adapter: Adapter) -> BorrowedDriver:
    """Return the driver of a connection of Django's. Raises ValueError for one that is not known.

    By its module: PyMySQL may be there under mysqlclient's name.
    """
    module: Any = getattr(wrapper, "Database", None)
    package = getattr(module, "__name__", wrapper.vendor).partition(".")[0]
    for driver in adapter.borrowable:
        if driver.package == package:
            return driver
    known = ", ".join(driver.package for driver in adapter.borrowable)
    raise ValueError(f"dblock joins transactions of {known}; this connection is {package}'s")
