"""How names, moments and parameters go to a database and come back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

#: Stands in a statement for the schema of the tables while that is unknown. :meth:`.Dialect.placed`
#: replaces it; a server refuses a statement that still contains it.
UNPLACED = "\0"


class Values:
    """How one database writes keys and parameters."""

    #: Seconds that a statement waits for locks of other transactions if it sets no limit itself, as
    #: in :class:`.Query`.
    patience: ClassVar[float | None] = None

    #: The parameter ``name`` in the driver's style.
    name_parameter: ClassVar[str] = "%(name)s"

    def key(self, name: str) -> object:
        """Return a lock name as the database stores it."""
        return name

    def shift(self, seconds: float) -> object:
        """Return the parameter of :attr:`~.dialect.Dialect.later`."""
        return seconds

    def exact(self, text: str) -> object:
        """Return a text for a parameter of a user's session, whatever its character set is."""
        return text

    def limit(self, patience: float | None) -> object:
        """Return the parameter of a statement that limits its wait for locks itself."""
        return patience

    def parameter(self, name: str) -> str:
        """Return any parameter in the driver's style."""
        return self.name_parameter.replace("name", name)


def text(key: str | bytes) -> str:
    """Return a lock name from the form in which a database stores it."""
    return key.decode() if isinstance(key, bytes) else key


def utc(value: Any) -> datetime | None:
    """Return a moment from the form in which a driver returns it."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if value is None:
        return None
    assert isinstance(value, datetime)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
