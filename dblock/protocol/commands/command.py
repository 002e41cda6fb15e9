"""The base of the commands, and how the types of their fields are written."""

from __future__ import annotations

from collections import namedtuple
from enum import Enum, auto
from typing import Annotated, Any, ClassVar, Generic, TypeVar, dataclass_transform

R_co = TypeVar("R_co", covariant=True)


class Encoding(Enum):
    """How a field is written as a parameter, if a database does not take the value as it is."""

    #: A lock name, or another key.
    NAME = auto()
    #: Seconds, which a statement adds to a clock.
    DURATION = auto()
    #: A text of the user's, in the user's session: whatever its character set, it arrives exactly.
    EXACT = auto()
    #: Seconds to wait for locks of other transactions, at most; None for no limit.
    LIMIT = auto()


Name = Annotated[str, Encoding.NAME]
Duration = Annotated[float, Encoding.DURATION]
Limit = Annotated[float | None, Encoding.LIMIT]
Exact = Annotated[str, Encoding.EXACT]

# By the texts of annotations. To evaluate these fails while the interpreter ends, when a finalizer
# may release a lease.
_ENCODINGS = {
    "Name": Encoding.NAME,
    "Name | None": Encoding.NAME,
    "Duration": Encoding.DURATION,
    "Limit": Encoding.LIMIT,
    "Exact": Encoding.EXACT,
}


@dataclass_transform(frozen_default=True)
class Command(tuple[Any, ...], Generic[R_co]):
    """A request to the database; ``R_co`` is the type of its reply. The docstring is the contract.

    A subclass lists its fields as a NamedTuple does, and costs as much. NamedTuple itself does not
    let a subclass fix the type ``R_co`` of a base.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]]
    #: The encoding of each field that has one.
    encodings: ClassVar[dict[str, Encoding]]
    #: The command's name in records of statements, from the name of its class: ``"join_readers"``.
    word: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if "word" not in vars(cls):
            cls.word = word(cls.__name__)
        fields = list(cls.__annotations__)
        cls.encodings = {
            field: _ENCODINGS[annotation]
            for field, annotation in cls.__annotations__.items()
            if annotation in _ENCODINGS
        }
        defaults = [vars(cls)[field] for field in fields if field in vars(cls)]
        shape = namedtuple(cls.__name__, fields, defaults=defaults)  # type: ignore[misc]
        for name in ("__new__", "__repr__", "__getnewargs__", "__match_args__", "_fields", *fields):
            setattr(cls, name, vars(shape)[name])


def word(name: str) -> str:
    """Return the word for a command, from the name of its class: ``"grant"``, ``"lock_row"``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
