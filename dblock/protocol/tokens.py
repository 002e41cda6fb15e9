"""Tokens of 32 characters. A reader's token has a prefix; readers share one reader's hold."""

from __future__ import annotations

from hashlib import blake2b

#: The prefix of a reader's token. Any other token is hexadecimal.
SHARED = "shared"
LENGTH = 32
#: The strategy of a reader, and of a waiter for a shared hold, as users see it.
STRATEGY = "shared"


def for_reader(token: str) -> str:
    """Return a token for a reader, made of a random token."""
    return SHARED + token[len(SHARED) :]


def is_shared(token: str | None) -> bool:
    """Whether it is a reader's token."""
    return token is not None and token.startswith(SHARED)


def renounced(token: str) -> str:
    """Return another token of the same kind, for a request whose token may still be released."""
    new = blake2b(token.encode(), digest_size=LENGTH // 2).hexdigest()
    return for_reader(new) if is_shared(token) else new
