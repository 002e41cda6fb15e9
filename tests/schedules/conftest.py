"""A schedule replaces what dblock's threads wait for: those of tests before it have to be gone."""

from __future__ import annotations

import gc
import threading

import pytest

from tests.support import eventually

KEEPERS = {"dblock timer", "dblock renewer", "dblock callbacks"}


@pytest.fixture(autouse=True)
def _no_keeper_of_before() -> None:
    gc.collect()  # holds that nobody has any more are not renewed
    eventually(lambda: KEEPERS.isdisjoint(thread.name for thread in threading.enumerate()))
