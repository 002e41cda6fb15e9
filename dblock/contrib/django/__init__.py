"""Locks in the databases of Django's settings.

>>> from dblock.contrib.django import locks
>>> @locks.lease("nightly", wait=0)                             # doctest: +SKIP
... def nightly(): ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.http import HttpRequest

    from ...arguments import Seconds
    from .counter import ModelCounter
    from .handles import DjangoLocks


def using(alias: str | None = None) -> DjangoLocks:
    """Return the locks in a database of ``DATABASES``, by default in ``DBLOCK``'s database."""
    from .handles import made

    return made(alias)


class _Default:
    """The locks that the settings name, looked up when used: importing this reads no settings."""

    def __getattr__(self, name: str) -> Any:
        return getattr(using(), name)

    def counter(self, field: Any, **options: Any) -> ModelCounter:
        """Return a counter in the database that the router names for the model's rows, which need
        not be the locks' database."""
        from .handles import model_counter

        return model_counter(None, field, **options)

    def __repr__(self) -> str:
        return "<the default locks>"


V = TypeVar("V", bound="Callable[..., Any]")


@overload
def idempotent(view: V, /) -> V: ...


@overload
def idempotent(
    *,
    using: str | None = None,
    caller: Callable[[HttpRequest], object] | None = None,
    fingerprint: Callable[[HttpRequest], object] | None = None,
    methods: Iterable[str] = ("POST", "PATCH"),
    required: bool = True,
    keep: Seconds = 24 * 3600.0,
    wait: Seconds | None = 0.0,
) -> Callable[[V], V]: ...


def idempotent(
    view: Any = None,
    /,
    *,
    using: str | None = None,
    caller: Callable[[HttpRequest], object] | None = None,
    fingerprint: Callable[[HttpRequest], object] | None = None,
    methods: Iterable[str] = ("POST", "PATCH"),
    required: bool = True,
    keep: Seconds = 24 * 3600.0,
    wait: Seconds | None = 0.0,
) -> Any:
    """Decorate a view: it runs once for each Idempotency-Key, in ``transaction.atomic()``.

    The view's changes, the key and the response commit together, in the database of the alias
    ``using``, or of the default locks. A repeated request gets the recorded response, and the view
    does not run.

    ``caller`` returns whose request it is; callers share no keys. It is the user who is logged in,
    or None. ``fingerprint`` returns a value that a repeated request must repeat, instead of its
    body. Requests with other ``methods`` run as usual. If ``required`` is false, so do requests
    without a key, in ``transaction.atomic()``. The record stays for ``keep`` seconds. While another
    request with the key runs, this one waits for up to ``wait`` seconds.
    """
    from ..http import Rules
    from .idempotency import decorator, user_of

    rules = Rules(
        user_of if caller is None else caller,
        fingerprint=fingerprint,
        methods=methods,
        required=required,
        keep=keep,
        wait=wait,
    )
    decorate = decorator(using, rules)
    return decorate if view is None else decorate(view)


locks = cast("DjangoLocks", _Default())

__all__ = ["idempotent", "locks", "using"]
