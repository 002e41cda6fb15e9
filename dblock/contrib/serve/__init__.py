"""The lock service: dblock's leases over HTTP, for programs in every language.

>>> from dblock.contrib.serve import app
>>> application = app(locks, tokens="/etc/dblock/tokens.toml")    # doctest: +SKIP

``dblock serve`` runs it. It is an ASGI application, so you can mount it in yours too.
"""

try:
    import starlette  # noqa: F401
except ImportError as error:
    raise ImportError(
        "dblock.contrib.serve needs Starlette: pip install 'dblock[serve]'"
    ) from error

from .application import Application, app

__all__ = ["Application", "app"]
