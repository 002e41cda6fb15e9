"""A statement of SQLAlchemy Core, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.sql import Select
from sqlalchemy.sql.compiler import SQLCompiler

from ..dialects.query import Query

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
    from sqlalchemy.sql.expression import ClauseElement
    from sqlalchemy.types import TypeEngine


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Core statement as text and parameters for the driver."""

    sql: str
    order: tuple[str, ...] | None
    constants: dict[str, Any]
    processors: Mapping[str, Callable[[Any], Any]]
    #: The types of a query's columns.
    types: tuple[TypeEngine[Any], ...] = ()

    @classmethod
    def of(
        cls,
        statement: ClauseElement,
        dialect: SQLAlchemyDialect,
        begin: str = "",
        schemas: Mapping[str | None, str | None] | None = None,
    ) -> Compiled:
        """Compile a statement. ``begin`` is put before its text; ``schemas`` maps the schemas of
        its tables to other schemas."""
        moved: dict[str, Any] = {"schema_translate_map": schemas, "render_schema_translate": True}
        compiled = statement.compile(dialect=dialect, **(moved if schemas else {}))
        assert isinstance(compiled, SQLCompiler)
        processors = {}
        for name, bind in compiled.binds.items():
            processor = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if processor is not None:
                processors[name] = processor
        order = None if compiled.positiontup is None else tuple(compiled.positiontup)
        types: tuple[TypeEngine[Any], ...] = ()
        if isinstance(statement, Select):
            types = tuple(
                column.type.dialect_impl(dialect) for column in statement.selected_columns
            )
        text = f"{begin} {compiled}" if begin else str(compiled)
        return cls(text, order, dict(compiled.params), processors, types)

    def query(self, values: dict[str, Any]) -> Query[int]:
        params = {**self.constants, **values}
        for name, processor in self.processors.items():
            params[name] = processor(params[name])
        if self.order is None:
            return Query(self.sql, params)
        return Query(self.sql, tuple(params[name] for name in self.order))

    def convert(
        self, row: Sequence[Any], kinds: Sequence[Any], dialect: SQLAlchemyDialect
    ) -> tuple[Any, ...]:
        """Return the driver's row as SQLAlchemy would; ``kinds`` are the driver's types."""
        values = []
        for value, type, kind in zip(row, self.types, kinds, strict=True):
            processor = type.result_processor(dialect, kind)
            values.append(value if processor is None else processor(value))
        return tuple(values)
