"""The list of readers that share a hold, in the name's row.

It is ``"group reader reader"``: the token of the hold, which is that of the reader who took the
name, and behind it those of all who share it now. A list of another token is void, so nothing that
takes or frees a name need know of it.
"""

from __future__ import annotations

from ..protocol.tokens import LENGTH, SHARED
from .dialect import Dialect


def shared(token: str = "token") -> str:
    """Whether a token is that of readers."""
    return f"SUBSTR({token}, 1, {len(SHARED)}) = '{SHARED}'"


class ReaderLists(Dialect):
    """What of the list is nearly the same for all databases."""

    def concatenate(self, *texts: str) -> str:
        return f"({' || '.join(texts)})"

    @property
    def listed(self) -> str:
        """Whether there is a list, and it is that of the present hold."""
        return f"COALESCE(SUBSTR(readers, 1, {LENGTH}) = token, FALSE)"

    @property
    def with_me(self) -> str:
        """The list, and on it who asks. While there is none the first reader has the hold alone."""
        readers = f"CASE WHEN {self.listed} THEN readers ELSE {self._first} END"
        return self.concatenate(readers, "' '", self.parameter("token"))

    @property
    def without_me(self) -> str:
        """The list without who asks."""
        return f"REPLACE(readers, {self._entry}, '')"

    @property
    def among(self) -> str:
        """Whether who asks shares the hold."""
        alone = f"token = {self.parameter('token')}"
        return f"CASE WHEN {self.listed} THEN {self.without_me} <> readers ELSE {alone} END"

    @property
    def last(self) -> str:
        """Whether nobody shares the hold but who asks."""
        return f"NOT {self.listed} OR {self.without_me} = token"

    @property
    def _entry(self) -> str:
        return self.concatenate("' '", self.parameter("token"))

    @property
    def _first(self) -> str:
        return self.concatenate("token", "' '", "token")
