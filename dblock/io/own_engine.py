"""An engine for dblock's own connections, which connect as those of another driver's engine do.

dblock's own connections have one driver for each database. Whoever uses another one gives dblock an
engine or a URL of that all the same: what it would connect with is translated, each time anew, so
that a password which a listener of ``do_connect`` puts in is a new one here too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import URL, Engine

from ..dialects.adapter import Adapter, same
from ..errors import Unsupported


def engine_like(
    given: Engine | URL, adapter: Adapter, driver: str, create: Callable[..., Engine]
) -> Engine:
    """Return an engine of the adapter's driver for the database of another one's.

    ``driver`` is the other one's name, ``create`` makes an engine from a URL. Raises Unsupported
    for what cannot be carried over: what a function of the user's connects with, or an argument
    that the adapter's driver has nothing like.
    """
    carry = adapter.carried[driver]
    carry(_fixed(given))  # what cannot be is told at once
    url = given.url if isinstance(given, Engine) else given
    name = f"{url.get_backend_name()}+{adapter.drivers[0]}"
    if carry is not same:  # its query is the other driver's
        url = url.set(query={})
    own = create(url.set(drivername=name), connect_args=adapter.connect_args())

    @event.listens_for(own, "do_connect")
    def connect(dialect: object, record: object, args: list[Any], params: dict[str, Any]) -> None:
        if carry is not same:
            args.clear()
        params.update(carry(_now(given)))

    return own


def connect_with(own: Engine, adapter: Adapter, driver: str, url: Callable[[], URL]) -> None:
    """Let an engine of dblock's own connect with a URL that is asked for each time.

    ``driver`` is SQLAlchemy's name for the URL's driver.
    """
    carry = adapter.carried[driver]

    @event.listens_for(own, "do_connect")
    def connect(dialect: object, record: object, args: list[Any], params: dict[str, Any]) -> None:
        params.update(carry(_fixed(url())))


def _fixed(given: Engine | URL) -> Mapping[str, Any]:
    """Return what is connected with by the URL, and by an engine's connect_args.

    Raises Unsupported for an engine that connects by a function of the user's.
    """
    if isinstance(given, URL):
        # SQLAlchemy's part of a driver is enough for that; the driver itself need not be there.
        _, params = given.get_dialect()().create_connect_args(given)
        return params
    creator = given.pool._creator
    if getattr(creator, "__module__", None) == "sqlalchemy.engine.create":
        # The function that connects is the only place where SQLAlchemy keeps them.
        found = inspect.getclosurevars(creator).nonlocals.get("cparams")
        if isinstance(found, Mapping):
            return found
    raise Unsupported(
        f"this engine connects by your own function (creator= or async_creator=), with "
        f"{given.dialect.driver}, which dblock's own connections do not use: give dblock a "
        "separate URL"
    )


def _now(given: Engine | URL) -> Mapping[str, Any]:
    """Return that as an engine's listeners of ``do_connect`` have it now."""
    params = dict(_fixed(given))
    if isinstance(given, URL):
        return params
    events: Any = given.dialect.dispatch
    for listener in events.do_connect:
        if listener(given.dialect, None, [], params) is not None:
            raise Unsupported(
                f"a listener of do_connect makes this engine's connections itself, with "
                f"{given.dialect.driver}, which dblock's own connections do not use: give dblock "
                "a separate URL"
            )
    return params
