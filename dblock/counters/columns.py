"""A counter's columns in the user's table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import InstrumentedAttribute, Session, scoped_session
from sqlalchemy.schema import Column, Index, Table, UniqueConstraint

if TYPE_CHECKING:
    from ..io.borrowed import Borrowable


@dataclass(frozen=True)
class Columns:
    """A counter's columns in one table: the value, the key that finds its row, and the version."""

    value: Column[Any]
    key: Column[Any]
    version: Column[Any] | None
    #: The value as the user has mapped it.
    attribute: InstrumentedAttribute[Any] | None

    @classmethod
    def of(
        cls,
        value: Column[Any] | InstrumentedAttribute[Any],
        key: Column[Any] | InstrumentedAttribute[Any],
        version: Column[Any] | InstrumentedAttribute[Any] | None,
    ) -> Columns:
        made = cls(
            _column("column", value),
            _column("key", key),
            None if version is None else _column("version", version),
            value if isinstance(value, InstrumentedAttribute) else None,
        )
        table = made.value.table
        if not isinstance(table, Table) or any(
            other is not None and other.table is not table for other in (made.key, made.version)
        ):
            raise ValueError("a counter's column, key and version are columns of one table")
        return made

    def __str__(self) -> str:
        return f"{self.value} by {self.key.name}"

    @property
    def table(self) -> Table:
        table = self.value.table
        assert isinstance(table, Table)
        return table

    @property
    def compared(self) -> Column[Any]:
        """The column whose value changes with each change of a row."""
        return self.value if self.version is None else self.version

    def row(self, key: Any) -> str:
        """Name the number in an error."""
        return f"{self.value} of {self.key.name} {key!r}"

    def check_unique(self) -> None:
        """Raise ValueError for a key that several rows may have, by the table's metadata.

        The metadata of a table without a primary key says nothing about that. Then the statements
        check it.
        """
        key, table = self.key, self.table
        if key.unique or not table.primary_key.columns:
            return
        sets = [list(table.primary_key.columns)]
        sets += [
            list(one.columns) for one in table.constraints if isinstance(one, UniqueConstraint)
        ]
        sets += [list(one.columns) for one in table.indexes if one.unique and not _is_partial(one)]
        if [key] not in sets:
            raise ValueError(
                f"{key} is not unique, and a counter counts in one row: give a key= that is the "
                "primary key by itself or has unique=True; if it is unique in the database, say so "
                "in the table"
            )

    def expire(self, session: Borrowable, rows: Iterable[tuple[Any, ...]]) -> None:
        """Make the ORM read rows again, by their primary keys: it does not notice statements that
        run below it."""
        if self.attribute is None:
            return
        found = session() if isinstance(session, scoped_session) else session
        if not isinstance(found, Session):
            return
        mapper = self.attribute.parent
        changed = [self.value] if self.version is None else [self.value, self.version]
        names = [mapper.get_property_by_column(column).key for column in changed]
        first, *others = mapper.primary_key
        for row in rows:
            if first.name == self.key.name and len(row) == 1 + len(others):
                instance = found.identity_map.get(mapper.identity_key_from_primary_key(row))
                if instance is not None:
                    found.expire(instance, names)


def _column(what: str, given: object) -> Column[Any]:
    found = given.property.columns[0] if isinstance(given, InstrumentedAttribute) else given
    if not isinstance(found, Column):
        raise TypeError(
            f"a counter's {what} is a Column or a mapped attribute, not {type(given).__name__}"
        )
    return found


def _is_partial(index: Index) -> bool:
    options: dict[str, Any] = dict(index.kwargs)
    return any(options[name] is not None for name in options if name.endswith("_where"))
