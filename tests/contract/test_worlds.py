"""What does not run in asyncio is little, and named."""

from __future__ import annotations

import importlib

from tests.contract.apart import EVERY_KIND, ONE_KIND, THREADS_ONLY


def exists(case: str) -> bool:
    file, _, function = case.partition("::")
    module = importlib.import_module(f"tests.contract.{file}")
    return not function or hasattr(module, function)


def test_what_is_apart_is_there() -> None:
    assert [case for case in (*THREADS_ONLY, *EVERY_KIND, *ONE_KIND) if not exists(case)] == []
    assert len(THREADS_ONLY) == 6
