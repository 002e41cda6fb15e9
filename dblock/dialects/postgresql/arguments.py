"""Other PostgreSQL drivers' connection arguments, translated to psycopg's, which are libpq's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import Unsupported
from ..adapter import Carry, same

# Arguments that are dropped: they choose the driver's Python classes, its caches or its timeouts,
# and dblock has its own.
_ITS_OWN = {
    "psycopg2": {"async", "async_", "connection_factory", "cursor_factory"},
    "asyncpg": {
        "command_timeout",
        "connection_class",
        "loop",
        "max_cacheable_statement_size",
        "max_cached_statement_lifetime",
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "record_class",
        "statement_cache_size",
        "timeout",
    },
}


def _psycopg2(given: Mapping[str, Any]) -> dict[str, Any]:
    """psycopg2 connects with libpq too, which refuses an argument that it does not know."""
    args = _without("psycopg2", given)
    if "database" in args:
        args["dbname"] = args.pop("database")
    if "dsn" in args:
        args["conninfo"] = args.pop("dsn")
    return args


def _asyncpg(given: Mapping[str, Any]) -> dict[str, Any]:
    args = _without("asyncpg", given)
    made: dict[str, Any] = {}
    for name, value in args.items():
        carry = _FROM_ASYNCPG.get(name)
        if carry is None:
            raise _cannot("asyncpg", f"{name}=")
        if value is not None:
            made |= carry(name, value)
    return made


def _without(driver: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in _ITS_OWN[driver]}


def _cannot(driver: str, what: str) -> Unsupported:
    return Unsupported(
        f"{what} of {driver} cannot be carried over to psycopg, which dblock's own connections "
        "use: give dblock a separate URL, postgresql+psycopg://..."
    )


# --- asyncpg's ------------------------------------------------------------------------------------


def _as_it_is(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def _renamed(name: str) -> Callable[[str, Any], dict[str, Any]]:
    return lambda _, value: {name: value}


def _several(name: str, value: Any) -> dict[str, Any]:
    """Hosts and ports: libpq takes a list as one text."""
    many = isinstance(value, Iterable) and not isinstance(value, str)
    return {name: ",".join(map(str, value)) if many else value}


def _password(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, str):
        raise _cannot("asyncpg", "a password= that is a function")
    return {name: value}


def _tls(name: str, value: Any) -> dict[str, Any]:
    if value is True:  # the machine's certificate authorities, and the host's name
        return {"sslmode": "verify-full", "sslrootcert": "system"}
    if value is False:
        return {"sslmode": "disable"}
    mode = getattr(value, "name", value)  # asyncpg's SSLMode
    if not isinstance(mode, str):
        raise _cannot(
            "asyncpg", "an ssl.SSLContext (ssl='verify-full' with PGSSLROOTCERT can be) in ssl="
        )
    return {"sslmode": mode.replace("_", "-")}


def _direct_tls(name: str, value: Any) -> dict[str, Any]:
    return {"sslnegotiation": "direct"} if value else {}


def _settings(name: str, value: Mapping[str, str]) -> dict[str, Any]:
    settings = dict(value)
    own = {key: settings.pop(key) for key in ("application_name",) if key in settings}
    # https://www.postgresql.org/docs/current/libpq-connect.html: spaces are escaped.
    options = " ".join(f"-c {key}={_escaped(setting)}" for key, setting in settings.items())
    return own | ({"options": options} if options else {})


def _escaped(setting: object) -> str:
    return str(setting).replace("\\", "\\\\").replace(" ", "\\ ")


_FROM_ASYNCPG: Mapping[str, Callable[[str, Any], dict[str, Any]]] = {
    "host": _several,
    "port": _several,
    "user": _as_it_is,
    "password": _password,
    "passfile": _as_it_is,
    "database": _renamed("dbname"),
    "dsn": _renamed("conninfo"),
    "service": _as_it_is,
    "ssl": _tls,
    "direct_tls": _direct_tls,
    "server_settings": _settings,
    "target_session_attrs": _as_it_is,
    "krbsrvname": _as_it_is,
    "gsslib": _as_it_is,
}

CARRIED: Mapping[str, Carry] = {
    "psycopg": same,
    "psycopg_async": same,
    "psycopg2": _psycopg2,
    "asyncpg": _asyncpg,
}
