"""Tokens: 32 characters. Those of readers say so, and readers share the hold of one of them."""

from __future__ import annotations

from hashlib import blake2b

#: What the token of a reader begins with; that of any other hold is hexadecimal.
SHARED = "shared"
LENGTH = 32
#: How they hold it, and what they wait for, in words for people.
STRATEGY = "shared"


def for_reader(token: str) -> str:
    """Return a token for who wants to share a name, made of a random one."""
    return SHARED + token[len(SHARED) :]


def is_shared(token: str | None) -> bool:
    """Whether it is the token of a hold that readers share."""
    return token is not None and token.startswith(SHARED)


def renounced(token: str) -> str:
    """Return the token to go on with, of the same kind, where this one may be released yet."""
    new = blake2b(token.encode(), digest_size=LENGTH // 2).hexdigest()
    return for_reader(new) if is_shared(token) else new
