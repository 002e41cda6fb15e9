"""An engine for dblock's own connections, which connects as a user's engine with another driver.

dblock's own connections have one driver for each database. A user of another driver can give dblock
an engine or a URL of that driver: dblock translates its connection arguments. It does so for each
connection, so that a ``do_connect`` listener that sets a fresh password works here too.
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
    """Return an engine with the adapter's driver for the database of ``given``.

    ``driver`` is the name of the driver of ``given``; ``create`` makes an engine from a URL. Raises
    Unsupported for an engine that connects by the user's own function, or for an argument to which
    the adapter's driver has no equivalent.
    """
    carry = adapter.carried[driver]
    carry(_fixed(given))  # raises at once for arguments that cannot be translated
    url = given.url if isinstance(given, Engine) else given
    name = f"{url.get_backend_name()}+{adapter.drivers[0]}"
    if carry is not same:  # the query's options are for the other driver
        url = url.set(query={})
    own = create(url.set(drivername=name), connect_args=adapter.connect_args())

    @event.listens_for(own, "do_connect")
    def connect(dialect: object, record: object, args: list[Any], params: dict[str, Any]) -> None:
        if carry is not same:
            args.clear()
        params.update(carry(_now(given)))

    return own


def connect_with(own: Engine, adapter: Adapter, driver: str, url: Callable[[], URL]) -> None:
    """Let an engine of dblock's own get its URL from a function for each connection.

    ``driver`` is SQLAlchemy's name for the URL's driver.
    """
    carry = adapter.carried[driver]

    @event.listens_for(own, "do_connect")
    def connect(dialect: object, record: object, args: list[Any], params: dict[str, Any]) -> None:
        params.update(carry(_fixed(url())))


def _fixed(given: Engine | URL) -> Mapping[str, Any]:
    """Return the connection arguments of a URL, or of an engine's URL and its connect_args.

    Raises Unsupported for an engine that connects by the user's own function.
    """
    if isinstance(given, URL):
        # This needs only SQLAlchemy's dialect; the driver itself need not be installed.
        _, params = given.get_dialect()().create_connect_args(given)
        return params
    creator = given.pool._creator
    if getattr(creator, "__module__", None) == "sqlalchemy.engine.create":
        # SQLAlchemy keeps the arguments only in the closure of its connecting function.
        found = inspect.getclosurevars(creator).nonlocals.get("cparams")
        if isinstance(found, Mapping):
            return found
    raise Unsupported(
        f"this engine connects by your own function (creator= or async_creator=), with "
        f"{given.dialect.driver}, which dblock's own connections do not use: give dblock a "
        "separate URL"
    )


def _now(given: Engine | URL) -> Mapping[str, Any]:
    """Return the same arguments after the engine's ``do_connect`` listeners have changed them."""
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
