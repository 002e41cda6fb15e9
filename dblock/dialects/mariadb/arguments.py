"""Other drivers' connection arguments, translated to PyMySQL's, which asyncmy has too."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from ...errors import Unsupported
from ..adapter import Carry

_NAMES = {
    "host": "host",
    "port": "port",
    "unix_socket": "unix_socket",
    "user": "user",
    "password": "password",
    "passwd": "password",
    "database": "database",
    "db": "database",
    "charset": "charset",
    "init_command": "init_command",
    "read_default_file": "read_default_file",
    "read_default_group": "read_default_group",
    "connect_timeout": "connect_timeout",
    "read_timeout": "read_timeout",
    "write_timeout": "write_timeout",
}

# Arguments that are dropped: they choose the driver's Python classes, dblock sets them itself, or
# they are for authentication methods of MySQL.
_ITS_OWN = {
    "auth_plugin",
    "auth_plugin_map",
    "autocommit",
    "binary_prefix",
    "client_flag",
    "collation",
    "compress",
    "conv",
    "cursor_cls",
    "cursorclass",
    "echo",
    "executemany_fallback",
    "local_infile",
    "local_infile_dir",
    "loop",
    "max_allowed_packet",
    "multi_statements",
    "named_pipe",
    "program_name",
    "query_callback",
    "server_public_key",
    "server_public_key_path",
    "sql_mode",
    "use_unicode",
}

# What MySQL Connector/Python has beside. If it is to fail over to other hosts, or to look the host
# up by a service's name, dblock cannot follow it.
_OF_CONNECTOR = {"connection_timeout": "connect_timeout", "password1": "password"}
_ITS_OWN_OF_CONNECTOR = {
    "allow_local_infile",
    "allow_local_infile_in_path",
    "buffered",
    "client_flags",
    "conn_attrs",
    "consume_results",
    "converter_class",
    "converter_str_fallback",
    "force_ipv6",
    "get_warnings",
    "pool_name",
    "pool_reset_session",
    "pool_size",
    "raise_on_warnings",
    "raw",
    "ssl_cipher",
    "time_zone",
    "tls_ciphersuites",
    "tls_versions",
    "use_pure",
}

# PyMySQL's names of its single TLS arguments, and their keys in its `ssl` argument.
_TLS = {"ssl_ca": "ca", "ssl_cert": "cert", "ssl_key": "key", "ssl_key_password": "password"}


def _carry(given: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    tls: dict[str, Any] = {}
    for name, value in given.items():
        if name in _NAMES:
            made[_NAMES[name]] = value
        elif name in _TLS:
            tls[_TLS[name]] = value
        elif name not in (*_ITS_OWN, "ssl", "ssl_mode", "ssl_disabled"):
            raise Unsupported(
                f"{name}= cannot be carried over to dblock's own connections: give dblock a URL of "
                "its own, mariadb+pymysql://..."
            )
    mode = "DISABLED" if given.get("ssl_disabled") else str(given.get("ssl_mode") or "").upper()
    return made | _verified(given.get("ssl"), tls, mode)


def _carry_connector(given: Mapping[str, Any]) -> dict[str, Any]:
    """Translate what Connector/Python calls differently, and then as for the others."""
    usual = {
        _OF_CONNECTOR.get(name, name): value
        for name, value in given.items()
        if name not in (*_ITS_OWN_OF_CONNECTOR, "ssl_verify_cert", "ssl_verify_identity")
    }
    if _is_on(given.get("ssl_verify_identity")):
        usual["ssl_mode"] = "VERIFY_IDENTITY"
    elif _is_on(given.get("ssl_verify_cert")):
        usual["ssl_mode"] = "VERIFY_CA"
    usual["ssl_disabled"] = _is_on(given.get("ssl_disabled"))
    return _carry(usual)


def _is_on(given: object) -> bool:
    """Read a flag, which is a word where it comes from a URL."""
    return str(given).lower() in ("1", "true", "yes", "on")


def _verified(given: Any, tls: dict[str, Any], mode: str) -> dict[str, Any]:
    """Return the TLS arguments, with which at least as much is verified as without dblock."""
    if mode == "DISABLED":
        return {"ssl_disabled": True}
    if isinstance(given, ssl.SSLContext):
        return {"ssl": given}
    if isinstance(given, Mapping):
        tls |= given
    if mode == "VERIFY_CA":
        tls |= {"check_hostname": False, "verify_mode": "required"}
    elif mode == "VERIFY_IDENTITY":
        if "ca" not in tls and "capath" not in tls:
            return {"ssl": _by_the_machine(tls)}  # without a CA PyMySQL would not verify the name
        tls |= {"check_hostname": True, "verify_mode": "required"}
    elif (given is True or mode == "REQUIRED") and not tls:
        tls = {"verify_mode": "none"}
    return {"ssl": tls} if tls else {}


def _by_the_machine(tls: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context that verifies a server's name by the machine's certificate authorities."""
    context = ssl.create_default_context()
    if "cert" in tls:
        context.load_cert_chain(tls["cert"], tls.get("key"), tls.get("password"))
    return context


CARRIED: Mapping[str, Carry] = {
    **dict.fromkeys(("pymysql", "mysqldb", "asyncmy", "aiomysql"), _carry),
    "mysqlconnector": _carry_connector,
}
