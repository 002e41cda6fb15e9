"""The numbers that a column holds exactly, by the column's type in the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation, localcontext
from math import isfinite
from typing import Any, TypeVar

from sqlalchemy import types
from sqlalchemy.types import TypeEngine

from ..errors import Unsupported

Number = int | float | Decimal
#: The type of a function's result.
N = TypeVar("N", bound=Number)

# The bits of integer types other than INTEGER, as databases and SQLAlchemy name the types.
_BITS = {
    "TINYINT": 8,
    "SMALLINT": 16,
    "SMALL_INTEGER": 16,
    "MEDIUMINT": 24,
    "BIGINT": 64,
    "BIG_INTEGER": 64,
}
# The decimal digits that a single and a double keep; then for each its binary digits, and a number
# slightly below its largest.
_SINGLES_DIGITS, _DOUBLES_DIGITS, _SINGLE, _DOUBLE = 6, 15, (24, 3.4e38), (53, 1.7e308)
# The digits and the decimals of a NUMERIC without limits: more than a counter needs. The column's
# NaN and Infinity are above them.
_UNLIMITED, _DECIMALS = 100, 300
_EXACTLY = Context(prec=1000, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of one column, from ``least`` to ``most``, with ``scale`` decimals.

    ``digits`` is how many binary digits a floating point number keeps; None for exact numbers.
    ``rounded`` says that the database stores decimals as doubles: statements round them each time,
    so they are exact too. ``name`` is the column's type in errors, if it is not SQLAlchemy's name.
    """

    type: TypeEngine[Any]
    least: Number
    most: Number
    scale: int = 0
    digits: int | None = None
    rounded: bool = False
    name: str = ""

    def __str__(self) -> str:
        return self.name or str(self.type)

    @classmethod
    def of(cls, column: str, type: TypeEngine[Any], dynamic: bool) -> Numbers:
        """Return the numbers of a column of this type. Raises Unsupported if it is not numeric.

        ``dynamic`` is as :attr:`.Dialect.dynamic_types`.
        """
        kind, unsigned = type.__visit_name__.upper(), getattr(type, "unsigned", False)
        if isinstance(type, types.Integer):
            bits = 64 if dynamic else _BITS.get(kind, 32)
            least = 0 if unsigned else -(2 ** (bits - 1))
            return cls(type, least, least + 2**bits - 1)
        floating = isinstance(type, types.Float)
        single = floating and kind in ("REAL", "FLOAT") and not dynamic
        precision, scale = getattr(type, "precision", None), getattr(type, "scale", None)
        if (isinstance(type, types.Numeric) and not floating) or (floating and scale is not None):
            doubles = dynamic or floating  # as MariaDB's DOUBLE(10, 2)
            if precision is not None:
                kept = _SINGLES_DIGITS if single else _DOUBLES_DIGITS
                digits = min(precision, kept) if doubles else precision
                largest = _largest(digits, scale or 0)
                return cls(type, 0 if unsigned else -largest, largest, scale or 0, rounded=doubles)
            if not dynamic:
                largest = _largest(_UNLIMITED, 0)
                return cls(type, -largest, largest, _DECIMALS)
            floating = True
        if floating:
            binary, limit = _SINGLE if single else _DOUBLE
            return cls(type, 0 if unsigned else -limit, limit, digits=binary)
        raise Unsupported(
            f"{column} is {type!r}: a counter needs an integer column, a NUMERIC or a floating "
            "point one"
        )

    @property
    def whole(self) -> bool:
        return isinstance(self.most, int)

    @property
    def inexact(self) -> bool:
        """Whether a value may not compare equal to the same value that was read before."""
        return self.digits is not None

    def exactly(self, what: str, number: Any) -> Number:
        """Return a number as the column holds it.

        Raises TypeError for a value that is not a number, ValueError for a number that the column
        would round, and OverflowError for a number that does not fit.
        """
        check_number(what, number)
        if not self.least <= number <= self.most:
            raise OverflowError(f"{what} is from {self.least} to {self.most} in {self}: {number!r}")
        if self.whole and isinstance(number, int):
            return int(number)
        if self.inexact:
            return float(number)
        exact = Decimal(repr(number) if isinstance(number, float) else number)
        try:
            _EXACTLY.quantize(exact, Decimal(1).scaleb(-self.scale))
        except (Inexact, InvalidOperation):
            most = f"{self.scale} decimals at most" if self.scale else "no fraction"
            raise ValueError(f"{what} has {most} in {self}: {number!r}") from None
        return int(exact) if self.whole else exact

    def room(self, n: Number, floor: Number | None) -> tuple[Number, Number]:
        """Return the least and the most value to which ``n`` may be added: the result fits and
        differs from the value, and after a take it is not below the floor."""
        least, most = self.least, self.most
        if n < 0:
            least = _difference(least if floor is None else max(least, floor), n)
        else:
            most = _difference(most, n)
        if self.digits is not None:  # a larger value would not change
            seen = abs(n) * 2 ** (self.digits - 1)
            least, most = max(least, -seen), min(most, seen)
        return least, most


def check_number(what: str, number: object) -> None:
    """Refuse a value that is not a number, and NaN and infinite numbers."""
    if isinstance(number, bool) or not isinstance(number, Number):
        raise TypeError(f"{what} is a number, not {type(number).__name__}: {number!r}")
    if not (number.is_finite() if isinstance(number, Decimal) else _is_finite(number)):
        raise ValueError(f"{what} is finite: {number!r}")


def exact_sum(numbers: Iterable[Number]) -> Number:
    """Return the sum; of decimals with all their digits."""
    with localcontext(_EXACTLY):
        return sum(numbers)


def even_parts(total: Number, parts: int) -> Sequence[Number]:
    """Split a total into ``parts`` parts, as even as its own last decimal allows."""
    if isinstance(total, int):
        part, more = divmod(total, parts)
        return [part + 1] * more + [part] * (parts - more)
    exact = Decimal(total)
    _, _, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    places = min(exponent, 0)
    units = int(exact.scaleb(-places, _EXACTLY))
    return [Decimal(part).scaleb(places, _EXACTLY) for part in even_parts(units, parts)]


def _is_finite(number: float) -> bool:
    return isinstance(number, int) or isfinite(number)  # no float is as large as some integers


def _largest(digits: int, scale: int) -> Decimal:
    one = Decimal(1)
    return _EXACTLY.subtract(one.scaleb(digits - scale), one.scaleb(-scale))


def _difference(one: Number, other: Number) -> Any:
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return _EXACTLY.subtract(Decimal(one), Decimal(other))
    return one - other
