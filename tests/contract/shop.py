"""What the tests of counters count in: a table of products."""

from __future__ import annotations

from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from dblock import Counter


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "product"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    stock: Mapped[int]
    version: Mapped[int] = mapped_column(default=0)


def left(engine: Engine, stock: Counter, key: int = 1) -> int:
    with engine.connect() as connection:
        return int(stock.value(connection, key))


class Shelf(Base):
    """The stock of a product in several rows."""

    __tablename__ = "shelf"
    product: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    stripe: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    stock: Mapped[int]
