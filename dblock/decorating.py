"""The functions that users give: checks, and the names of their wrappers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeGuard, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
G = TypeVar("G", bound=Callable[..., Any])
C = TypeVar("C")


def is_coroutine_function(
    function: object,
) -> TypeGuard[Callable[..., Coroutine[Any, Any, Any]]]:
    """Whether a call returns a coroutine; ``function`` may be a partial or a callable object."""
    return any(map(inspect.iscoroutinefunction, (function, body_of(function))))


#: The default name, in errors, of the code that takes a function.
DECORATOR = "a decorator of dblock"


def check_runnable(function: F, how: str = "unlocked", taker: str = DECORATOR) -> F:
    """Return a function whose body has run when it returns; refuse any other.

    The error says ``how`` the body would run otherwise, and that ``taker`` takes the function.
    """
    check_callable(function, taker)
    body = body_of(function)
    if is_coroutine_function(function) or any(
        is_lazy(one)
        for is_lazy in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        for one in (function, body)
    ):
        raise TypeError(
            f"{function!r} would return before its body runs, and the body would run {how}; use "
            "`with` inside it"
        )
    return function


def check_coroutine(function: Callable[..., object], taker: str = f"{DECORATOR}.aio") -> None:
    """Raise TypeError if a function is not a coroutine function; ``taker`` is what takes it."""
    if not is_coroutine_function(check_callable(function, taker)):
        raise TypeError(f"{function!r} is not a coroutine function: {taker} takes an `async def`")


def check_callable(function: F, taker: str = DECORATOR) -> F:
    """Return a function: anything that can be called."""
    if not callable(function):
        hint = "; put it below @classmethod and @property" if taker.startswith(DECORATOR) else ""
        raise TypeError(
            f"{taker} takes a function, not {type(function).__name__}: {function!r}{hint}"
        )
    return function


def check_callback(what: str, callback: C) -> C:
    """Return a callback. It is a function, or None."""
    if callback is None:
        return callback
    if not callable(callback):
        raise TypeError(f"{what} is a function, not {type(callback).__name__}: {callback!r}")
    if is_coroutine_function(callback):
        raise TypeError(f"{what} cannot be a coroutine function: nobody would await it")
    return callback


def wraps(function: Callable[..., Any]) -> Callable[[G], G]:
    """:func:`functools.wraps`, also for a callable without a name: a partial gets the name of its
    function, and an object the name of its class."""

    def decorate(wrapper: G) -> G:
        if hasattr(function, "__name__"):
            functools.update_wrapper(wrapper, function)
            return wrapper
        named = _inside(function)
        known = named if hasattr(named, "__name__") else type(named)
        functools.update_wrapper(wrapper, known, updated=())
        # A task queue that imports its jobs by name must not find the undecorated one.
        wrapper.__qualname__ = f"{known.__qualname__}.<decorated>"
        wrapper.__wrapped__ = function  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _inside(function: Any) -> Any:
    """Return the function that a partial calls."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def body_of(function: object) -> Any:
    """Return the function that a call of an object runs."""
    called = _inside(function)
    if inspect.isroutine(called) or inspect.isclass(called) or not callable(called):
        return called
    return type(called).__call__
