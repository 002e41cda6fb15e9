"""Shared by the commands: the options of the database, and the checks of arguments.

The library's own rules check them here, before any I/O, so a wrong argument is a usage error.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from ..arguments import COUNT_MAX, check_identifier, check_name
from ..errors import DBLockError, LimitMismatch, LockLost, Unsupported
from ..io.target import address
from .default import Default
from .durations import Duration, duration
from .output import complain
from .url_file import UrlFile
from .urls import Urls, given_by, given_urls, refuse_empty

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..io.target import Target
    from ..locks import Locks
    from ..quorum.quorum import Quorum

P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def arguments(source: str = "") -> Iterator[None]:
    """Turn the library's errors about arguments into usage errors, which name them as options.

    ``source`` names the option or the variable of the value, if the error is about one value.
    """
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        said = in_shell(str(error), click.get_current_context().command)
        raise click.UsageError(f"{source}: {said}" if source else said) from error


# The Python arguments in errors, to be renamed to options. Quoted text is the user's own.
_WORDS = re.compile(
    r"""
    (?<!\w)'(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*"
    | \bresize\((?P<slots>\d+)\)
    | (?P<endless>(?:To\ wait\ for\ ever|For\ no\ limit),\ give\ None)
    | (?P<name>\w+_\w+|\w+(?==))(?:=True\b|=(?!\S))?
    """,
    re.VERBOSE,
)
# Arguments that an option gives by another name, if the command has that option.
_OTHER_NAMES = {"max_hold": "at_most", "limit": "slots"}
# The arguments that dblock's own errors name. In the others such words can be a server's.
_NAMED: dict[type[DBLockError], set[str]] = {
    LimitMismatch: {"limit"},
    LockLost: {"max_hold"},
    Unsupported: {"trust_server"},
}


def in_shell(said: str, command: click.Command, only: Container[str] | None = None) -> str:
    """Return an error of the library's with the words of the command line.

    It names arguments, or ``only`` some of them, as the command's options do: at_least is
    --at-least. And limit=3, which a semaphore takes in Python, is --slots=3.
    """
    own = {
        str(param.name): max(param.opts, key=len)
        for param in command.params
        if isinstance(param, click.Option)
    }
    other = {name: own[option] for name, option in _OTHER_NAMES.items() if option in own}
    named = other | own

    def word(found: re.Match[str]) -> str:
        if found["slots"]:
            return f"dblock resize NAME {found['slots']}"
        if found["endless"]:
            return "For no limit, leave the option out"
        if only is not None and found["name"] not in only:
            return found[0]
        return named.get(found["name"], found[0])

    return _WORDS.sub(word, said)


def told(error: DBLockError, command: click.Command | None = None) -> str:
    """Return the message of an error of ``command``, by default of the running command, with the
    words of the command line."""
    named = _NAMED.get(type(error))
    if named is None:
        return str(error)
    return in_shell(str(error), command or click.get_current_context().command, named)


def checked(check: Callable[[Any], object]) -> Callable[..., object]:
    """Return a callback for a parameter that a function of the library checks."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> object:
        try:
            return None if value is None else check(value)
        except (ValueError, TypeError, OverflowError) as error:
            said = in_shell(str(error), ctx.command)
            raise click.BadParameter(said, ctx, param) from error

    return callback


def _duration(check: Callable[[float], object], text: str) -> Duration:
    made = duration(text)
    check(made)
    return made


def duration_option(
    name: str, check: Callable[[float], object], help: str, **options: Any
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return an option that takes a duration, checked by a function of the library."""
    return click.option(
        name,
        callback=checked(partial(_duration, check)),
        metavar="DURATION",
        help=help,
        **options,
    )


def limit_option(default: int, help: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return the option that limits how many the command prints."""
    return click.option(
        "--limit",
        type=click.IntRange(1, COUNT_MAX),
        default=default,
        show_default=True,
        metavar="N",
        help=help,
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from .completion import names  # here, because only a shell that completes needs it

    return names(ctx, incomplete)


def _files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


name_argument = click.argument("name", callback=checked(check_name), shell_complete=_names)


@dataclass(frozen=True, slots=True)
class Location:
    """The database, and the place of dblock's tables in it. Several databases are a quorum."""

    urls: tuple[str, ...]
    schema: str | None
    prefix: str
    trust: bool = False
    #: The file that the URLs were read from.
    file: UrlFile | None = None
    #: The option or the variable that gave the URLs.
    given_by: str = ""

    @property
    def tables(self) -> dict[str, Any]:
        return {"schema": self.schema, "prefix": self.prefix}

    @property
    def there(self) -> dict[str, Any]:
        """Return the tables, and whether their server is trusted."""
        return {**self.tables, "trust_server": self.trust}

    def target(self) -> Target:
        """Return the database's URL. Create the default file if it is that one.

        Raises UsageError for several: the command is one of those that a quorum does not have.
        """
        self._refuse_several()
        return self.urls[0] if self.urls else Default.find().url()

    @property
    def default(self) -> bool:
        """Whether no database was given."""
        return not self.urls

    @property
    def several(self) -> bool:
        """Whether several databases were given, which are a quorum."""
        return len(self.urls) > 1

    def _refuse_several(self) -> None:
        if self.several:
            command = click.get_current_context().info_name
            raise click.UsageError(
                f"{self.given_by}: dblock {command} takes one database, and {len(self.urls)} were "
                f"given: give one at a time. Several are a quorum, which has "
                f"{', '.join(AT_A_QUORUM)}"
            )

    def where(self) -> str:
        """Name the database, and the place in it, for people."""
        if self.default:
            return f"{Default.find().file}, for this host only"
        shown = " + ".join(address(url, **self.tables) for url in self.urls)
        return f"a majority of {shown}" if self.several else shown

    def tell(self, *, always: bool = False) -> None:
        """Name the database on standard error.

        If it is the default file, do so also without a terminal, as under cron: each host has such
        a file of its own, so each host would run the job.
        """
        if always or (self.default and not sys.stderr.isatty()):
            why = "no database was given: " if self.default else ""
            complain(f"{why}locks are in {self.where()}")

    @contextlib.contextmanager
    def locks(self, label: str | None = None, *, named: bool = False) -> Iterator[Locks]:
        """Yield the locks there. Create the tables in the default file, but never elsewhere.

        With ``named`` it names the database on standard error.
        """
        from ..locks import Locks

        with arguments(self.given_by):
            locks = Locks(self.target(), label=label, **self.there)
        if self.file is not None:
            self.file.follow(locks)
        with locks:
            if self.default:
                Default.migrate(locks, **self.tables)
            self.tell(always=named)
            yield locks

    @contextlib.contextmanager
    def quorum(self, *, named: bool = False) -> Iterator[Quorum]:
        """Yield the quorum of the databases, if they are the members of one.

        With ``named`` it names them on standard error.
        """
        from ..quorum.quorum import Quorum

        with arguments(self.given_by):
            quorum = Quorum(self.urls, **self.there)
        if self.file is not None:
            for number, locks in enumerate(quorum._made):
                self.file.follow(locks, number)
        with quorum:
            self.tell(always=named)
            with arguments(self.given_by):
                quorum._members.records.read()
            yield quorum

    @contextlib.contextmanager
    def either(self, *, named: bool = False) -> Iterator[Locks | Quorum]:
        """Yield the quorum if several databases were given, the locks if not."""
        found: contextlib.AbstractContextManager[Locks | Quorum]
        found = self.quorum(named=named) if self.several else self.locks(named=named)
        with found as locks:
            yield locks

    def check(self) -> Target:
        """Return the database to print statements for, without I/O."""
        from ..io.target import resolve
        from ..policy import Timeouts

        self._refuse_several()
        url = self.urls[0] if self.urls else "sqlite:///locks.db"
        with arguments(self.given_by):
            resolve(url, timeouts=Timeouts(), **self.tables)
        return url


def _identifier(what: str) -> Callable[..., object]:
    """Return the callback for a schema or a prefix. `refuse_empty` refuses a blank one."""
    check = checked(partial(check_identifier, what))

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> object:
        by_variable = ctx.get_parameter_source(str(param.name)) is ParameterSource.ENVIRONMENT
        return value if by_variable and not value.strip() else check(ctx, param, value)

    return callback


#: The commands that take several databases.
AT_A_QUORUM = ("run", "list", "show", "release", "doctor", "rejoin")

#: The options that say which database it is, and whether they have a value.
DATABASE = {
    "--url": True,
    "--url-file": True,
    "--schema": True,
    "--prefix": True,
    "--trust-server": False,
}


def database_options(command: Callable[P, T]) -> Callable[..., T]:
    """Add --url and the like to a command, which gets them as its ``place``."""

    @click.option(
        "--url",
        type=Urls(),
        multiple=True,
        envvar="DBLOCK_URL",
        show_envvar=True,
        help="The database; repeat it for a quorum. Default: an SQLite file for this host only.",
    )
    @click.option(
        "--url-file",
        envvar="DBLOCK_URL_FILE",
        show_envvar=True,
        metavar="PATH",
        shell_complete=_files,
        help="A file with the URL, one a line, which others may not read.",
    )
    @click.option(
        "--schema",
        envvar="DBLOCK_SCHEMA",
        show_envvar=True,
        callback=_identifier("a schema"),
        help="The schema of dblock's tables. Default: the connection's schema.",
    )
    @click.option(
        "--prefix",
        envvar="DBLOCK_PREFIX",
        show_envvar=True,
        callback=_identifier("a prefix"),
        default="dblock_",
        show_default=True,
        help="The prefix of dblock's tables.",
    )
    @click.option(
        "--trust-server",
        is_flag=True,
        envvar="DBLOCK_TRUST_SERVER",
        show_envvar=True,
        help="Use a look-alike of PostgreSQL, MySQL or MariaDB, without any promise.",
    )
    @functools.wraps(command)
    def wrapped(
        url: tuple[str, ...] = (),
        url_file: str | None = None,
        schema: str | None = None,
        prefix: str = "dblock_",
        trust_server: bool = False,
        **rest: Any,
    ) -> T:
        # In a framework's own command line the framework's settings give the place.
        ctx = click.get_current_context()
        place = ctx.find_object(Location)
        if place is None:
            refuse_empty(ctx)
            given, file = given_urls(ctx, url, url_file)
            by = given_by(ctx, "url" if file is None else "url_file")
            place = Location(given, schema, prefix, trust_server, file, by)
        return command(place=place, **rest)  # type: ignore[call-arg, arg-type]

    return wrapped
