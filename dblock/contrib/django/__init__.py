"""Locks in the databases of Django's settings.

>>> from dblock.contrib.django import locks
>>> @locks.lease("nightly", wait=0)                             # doctest: +SKIP
... def nightly(): ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from .counter import ModelCounter
    from .handles import DjangoLocks


def using(alias: str | None = None) -> DjangoLocks:
    """Return the locks in a database of ``DATABASES``: those of ``DBLOCK`` when None is named."""
    from .handles import made

    return made(alias)


class _Default:
    """The locks that the settings name, looked up when used: importing this reads no settings."""

    def __getattr__(self, name: str) -> Any:
        return getattr(using(), name)

    def counter(self, field: Any, **options: Any) -> ModelCounter:
        """Return a counter where the router has the model's rows, the locks being there or not."""
        from .handles import model_counter

        return model_counter(None, field, **options)

    def __repr__(self) -> str:
        return "<the default locks>"


locks = cast("DjangoLocks", _Default())

__all__ = ["locks", "using"]
