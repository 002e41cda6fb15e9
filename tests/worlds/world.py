"""What a case asks of its world; this one is that of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine

import dblock.holding.keeper
from dblock import Locks
from dblock.holding.keeper import Keeper
from dblock.io.runtime import Runtime


class World:
    name: ClassVar[str] = "threads"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def locks(self, url: str, **options: Any) -> Locks:
        return Locks(url, **options)

    def engine(self, url: str, **options: Any) -> Engine:
        """The user's own."""
        return create_engine(url, **options)

    def keeper(self) -> Keeper:
        """Who renews here."""
        return dblock.holding.keeper.keeper

    def use_keeper(self, patch: pytest.MonkeyPatch, kind: Callable[..., Keeper]) -> Keeper:
        """Have what is locked from now on kept by a keeper of the test's own."""
        made = kind(Runtime())
        patch.setattr(dblock.holding.keeper, "keeper", made)
        return made
