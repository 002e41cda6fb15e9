"""The checks of the functions' arguments, in PL/pgSQL, before they read or write anything.

:mod:`dblock.arguments` has the bounds. No error repeats a token, which is a secret.
"""

from __future__ import annotations

from ...arguments import NAME_MAX, TTL_MAX, TTL_MIN
from ...protocol.tokens import LENGTH

#: The SQLSTATE of a stale fence. The SQL standard leaves its class to implementations.
STALE_FENCE = "LK001"

NAME = f"""
    IF $1 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a lock name cannot be NULL';
    ELSIF char_length($1) NOT BETWEEN 1 AND {NAME_MAX} THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'a lock name has 1 to {NAME_MAX} characters, this one has %s', char_length($1)),
            HINT = 'Shorten it, or use a hash of it';
    END IF;"""

TOKEN = f"""
    IF $2 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a token cannot be NULL';
    ELSIF $2 !~ '^[0-9a-f]{{{LENGTH}}}$' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'a token has {LENGTH} hexadecimal digits, in lower case',
            HINT = 'Make a random one for each hold, before the first call';
    END IF;"""

OWNER = f"""
    IF $3 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'an owner cannot be NULL',
            HINT = 'Give the host, the process and its purpose: people read it';
    ELSIF char_length($3) > {NAME_MAX} THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'an owner has at most {NAME_MAX} characters, this one has %s', char_length($3)),
            HINT = 'Shorten it';
    END IF;"""

FENCE = """
    IF $2 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a fence cannot be NULL';
    ELSIF $2 < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('a fence is at least 1, not %s', $2);
    END IF;"""

# Under a stricter level a statement sees the rows as they were when its transaction began.
ISOLATION = """
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE invalid_transaction_state USING MESSAGE = format(
            'a lock function needs the isolation level READ COMMITTED, and the transaction has %s',
            upper(current_setting('transaction_isolation'))),
            HINT = 'Call it in a transaction of its own, or BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;"""


def ttl(value: str) -> str:
    """Return the check of a TTL. NaN is larger than any number to PostgreSQL."""
    return f"""
    IF {value} IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'a TTL cannot be NULL';
    ELSIF {value} NOT BETWEEN {TTL_MIN} AND {TTL_MAX:.0f} THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'a TTL is {TTL_MIN} seconds to 366 days ({TTL_MAX:.0f} seconds), not %s', {value}),
            HINT = 'Renew the lease while you hold it: then a short TTL is enough';
    END IF;"""
