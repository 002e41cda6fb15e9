"""A statement of SQLAlchemy Core's, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.sql.compiler import SQLCompiler

from .protocol.steps import Query

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
    from sqlalchemy.sql.expression import ClauseElement


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Core statement as text and parameters for the driver."""

    sql: str
    order: tuple[str, ...] | None
    constants: dict[str, Any]
    processors: Mapping[str, Callable[[Any], Any]]

    @classmethod
    def of(cls, statement: ClauseElement, dialect: SQLAlchemyDialect) -> Compiled:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        processors = {}
        for name, bind in compiled.binds.items():
            processor = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if processor is not None:
                processors[name] = processor
        order = None if compiled.positiontup is None else tuple(compiled.positiontup)
        return cls(str(compiled), order, dict(compiled.params), processors)

    def query(self, values: dict[str, Any]) -> Query[int]:
        params = {**self.constants, **values}
        for name, processor in self.processors.items():
            params[name] = processor(params[name])
        if self.order is None:
            return Query(self.sql, params)
        return Query(self.sql, tuple(params[name] for name in self.order))
