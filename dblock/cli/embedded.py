"""The commands inside a framework's own command line. The framework knows the database."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..io.target import address
from .doctor import doctor
from .group import Commands
from .metrics import metrics
from .options import DATABASE, Location
from .prune import prune
from .rate import rate
from .run_command import run
from .runs import runs
from .show import list_, release, resize, show

if TYPE_CHECKING:
    from ..io.target import Target
    from ..locks import Locks

# Given by the framework's settings.
_GIVEN = {option.removeprefix("--").replace("-", "_") for option in DATABASE}


class Given(Location):
    """The framework's own locks, looked up when they are needed. The framework closes them."""

    __slots__ = ("given",)
    given: Callable[[], Locks]

    def __init__(self, given: Callable[[], Locks]) -> None:
        super().__init__((), None, "dblock_")
        object.__setattr__(self, "given", given)  # Location is frozen

    @property
    def tables(self) -> dict[str, Any]:
        dialect = self.given()._database.dialect
        return {"schema": dialect.schema, "prefix": dialect.prefix}

    @property
    def there(self) -> dict[str, Any]:
        return {**self.tables, "trust_server": self.given()._database.dialect.adapter.trust_server}

    def target(self) -> Target:
        return self.given().engine

    @property
    def default(self) -> bool:
        return False

    def where(self) -> str:
        return address(self.given().engine.url, **self.tables)

    check = target

    @contextlib.contextmanager
    def locks(self, label: str | None = None, *, named: bool = False) -> Iterator[Locks]:
        self.tell(always=named)
        yield self.given()


def commands(
    place: Callable[[click.Context], Location],
    *more: click.Command,
    options: Sequence[click.Option] = (),
) -> Commands:
    """Return the commands for leases, and ``more``.

    Each looks up the ``place`` when it runs, and has the framework's own ``options`` too.
    """
    chosen = (run, rate, list_, show, runs, release, resize, prune, doctor, metrics, *more)
    names = ", ".join(str(command.name) for command in chosen)

    # If the command is missing, one line says so, instead of the whole help as an error.
    @click.group("dblock", cls=Commands, help=f"Locks: {names}.", no_args_is_help=False)
    @click.pass_context
    def group(ctx: click.Context) -> None:
        ctx.obj = place(ctx)

    for command in chosen:
        mine = copy.copy(command)
        mine.params = [param for param in command.params if param.name not in _GIVEN]
        mine.params += options
        group.add_command(mine)
    assert isinstance(group, Commands)
    return group
