"""The list of readers that share a hold, in the name's row.

It is ``"group reader reader"``: the hold's token, which is the token of the reader that took the
name, and behind it the tokens of all readers that share the hold now. A list that begins with
another token is void. So the statements that grant or release a name need not change it.
"""

from __future__ import annotations

from ..protocol.tokens import LENGTH, SHARED
from .dialect import Dialect


def shared(token: str = "token") -> str:
    """Whether a token is a reader's."""
    return f"SUBSTR({token}, 1, {len(SHARED)}) = '{SHARED}'"


class ReaderLists(Dialect):
    """SQL for the list, nearly the same for all databases. The statement's ``token`` is the
    requester's."""

    def concatenate(self, *texts: str) -> str:
        return f"({' || '.join(texts)})"

    @property
    def listed(self) -> str:
        """Whether there is a list, and it belongs to the present hold."""
        return f"COALESCE(SUBSTR(readers, 1, {LENGTH}) = token, FALSE)"

    @property
    def with_me(self) -> str:
        """The list with the requester added. Without a list the first reader has the hold alone."""
        readers = f"CASE WHEN {self.listed} THEN readers ELSE {self._first} END"
        return self.concatenate(readers, "' '", self.parameter("token"))

    @property
    def without_me(self) -> str:
        """The list without the requester."""
        return f"REPLACE(readers, {self._entry}, '')"

    @property
    def among(self) -> str:
        """Whether the requester shares the hold."""
        alone = f"token = {self.parameter('token')}"
        return f"CASE WHEN {self.listed} THEN {self.without_me} <> readers ELSE {alone} END"

    @property
    def last(self) -> str:
        """Whether the requester is the only reader of the hold."""
        return f"NOT {self.listed} OR {self.without_me} = token"

    @property
    def _entry(self) -> str:
        return self.concatenate("' '", self.parameter("token"))

    @property
    def _first(self) -> str:
        return self.concatenate("token", "' '", "token")
