"""A handle that is dropped takes its row lock along, whatever becomes of the warning."""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Any

import pytest

from dblock.aio import AsyncLocks
from tests.support import SECONDS


def test_a_dropped_row_lock_is_free_where_warnings_are_errors(
    url: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda about: told.append(about.exc_value))

    async def main() -> None:
        async with AsyncLocks(url) as locks, AsyncLocks(url) as others:
            held = [locks.row("order")]
            assert await held[0].acquire()
            gc.collect()
            gc.disable()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                told.clear()
                held.clear()
                assert [type(error) for error in told] == [ResourceWarning]
                async with others.row("order", wait=SECONDS / 2):
                    pass

    try:
        run(main())
    finally:
        gc.enable()
