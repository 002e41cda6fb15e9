"""``dblock serve`` and ``dblock token``: dblock's leases over HTTP."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from ..arguments import COUNT_MAX, check_ttl
from ..cli import durations, exits
from ..cli.options import Location, arguments, database_options, duration_option
from ..cli.output import complain
from ..errors import Misconfigured, Unavailable, Unsupported

if TYPE_CHECKING:
    from ssl import SSLContext

    from ..aio import AsyncLocks

RIGHTS = ("read", "hold", "admin")


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    """Say which command installs the extra, if it is missing."""
    try:
        yield
    except ImportError as error:
        raise Unsupported(str(error)) from error


@click.command(
    "serve", short_help="Serve leases over HTTP, for other languages.", epilog=durations.HELP
)
@click.option(
    "--bind",
    default="127.0.0.1:8700",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; unix:PATH for a Unix socket.",
)
@click.option(
    "--tokens",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The callers' tokens, from dblock token. Required unless only this host can connect.",
)
@click.option("--certificate", metavar="FILE", help="Serve HTTPS, with this certificate (PEM).")
@click.option("--key", metavar="FILE", help="The certificate's key, if it is in another file.")
@duration_option(
    "--max-ttl", check_ttl, "The longest TTL of a lease.", default="1d", show_default=True
)
@click.option(
    "--connections",
    type=click.IntRange(1, COUNT_MAX),
    default=1000,
    show_default=True,
    metavar="N",
    help="How many clients can be connected.",
)
@click.option(
    "--access-log/--no-access-log",
    default=True,
    show_default=True,
    help="Print a line of JSON for each request.",
)
@database_options
def serve(
    place: Location,
    bind: str,
    tokens: str | None,
    certificate: str | None,
    key: str | None,
    max_ttl: float,
    connections: int,
    access_log: bool,
) -> int:
    """Serve leases over HTTP, for programs in other languages.

    \b
      dblock serve --url postgresql+psycopg://app@db/app
      curl -X PUT --json '{"token": "'$(openssl rand -hex 16)'", "ttl": 30}' \\
          http://127.0.0.1:8700/v1/leases/report

    The service keeps no holds: a client's token is its hold. So you can run several processes
    behind a load balancer, and stop each at any time. Without --tokens every program on this host
    may take and release every name, and other hosts cannot connect.
    """
    with _extra():
        from .serve import app
        from .serve.bind import Bind
        from .serve.server import run
    if key is not None and certificate is None:
        raise click.UsageError("--key needs --certificate")
    with arguments("--bind"):
        where = Bind.parse(bind)
    if tokens is None and not where.local:
        raise click.UsageError(
            f"other hosts can connect to {bind}, so --tokens is required: create the file with "
            "dblock token, or listen on 127.0.0.1"
        )
    with arguments("--certificate"):
        tls = None if certificate is None else _context(certificate, key)
    with arguments(place.given_by):
        locks = _locks(place)
    with arguments("--tokens"):
        # No page in a browser reaches a Unix socket.
        local = tokens is None and where.path is None
        application = app(locks, tokens=tokens, ttl_max=max_ttl, local=local)
    _check_set_up(place)
    try:
        listening = where.listen()
    except OSError as error:
        raise Misconfigured(f"dblock cannot listen on {bind}: {error.strerror}") from error
    if tls is None and not where.local:
        complain("without --certificate tokens cross the network as they are: use a TLS proxy")
    said = f"listening on {where.describe(listening)}, locks are in {place.where()}"
    with listening, where.removed_afterwards(), _logs(access_log):
        run(application, listening, tls=tls, connections=connections, ready=partial(complain, said))
    return exits.OK


def _context(certificate: str, key: str | None) -> SSLContext:
    from .serve.server import context

    try:
        return context(certificate, key)
    except OSError as error:  # ssl.SSLError too
        files = certificate if key is None else f"{certificate} with {key}"
        raise ValueError(f"{files}: {error.strerror or error}") from error


def _check_set_up(place: Location) -> None:
    """Fail now if the set-up is wrong. A database that is down may come back, so this waits."""
    try:
        with place.locks() as locks:
            locks.last_run("dblock")  # any name: the first statement looks at the tables' version
    except Misconfigured:
        raise
    except Unavailable as error:
        complain(f"the database cannot be reached yet, and requests get 503 meanwhile: {error}")


def _locks(place: Location) -> AsyncLocks:
    from sqlalchemy.engine import Engine

    from ..aio import AsyncLocks

    target = place.target()
    assert not isinstance(target, Engine)  # only a framework has one, and no dblock serve
    locks = AsyncLocks(target, **place.there)
    if place.file is not None:
        place.file.follow(locks.sync)
    return locks


@contextlib.contextmanager
def _logs(access: bool) -> Iterator[None]:
    """Print errors on standard error, and the access log on standard output."""
    from .serve.access_log import Writer

    errors = logging.StreamHandler()
    errors.setFormatter(logging.Formatter("dblock: %(message)s"))
    requests = Writer(sys.stdout) if access else logging.NullHandler()
    ours, theirs = logging.getLogger("dblock"), logging.getLogger("dblock.serve.access")
    ours.addHandler(errors)
    theirs.addHandler(requests)
    theirs.propagate = False
    theirs.setLevel(logging.INFO if access else logging.CRITICAL)
    try:
        yield
    finally:
        ours.removeHandler(errors)
        theirs.removeHandler(requests)
        requests.flush()


@click.command("token", short_help="Make a token for a caller of dblock serve.")
@click.argument("name")
@click.option(
    "--tokens",
    required=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The file of tokens. dblock creates it if it is missing.",
)
@click.option(
    "--names",
    multiple=True,
    required=True,
    metavar="PREFIX",
    help="What the caller's names begin with. Repeat it for more; '' is all names.",
)
@click.option(
    "--right",
    "rights",
    multiple=True,
    type=click.Choice(RIGHTS),
    default=("read", "hold"),
    show_default=True,
    help="What the caller may do with them: see them, take them, release them by force.",
)
def token(name: str, tokens: str, names: tuple[str, ...], rights: tuple[str, ...]) -> int:
    """Make a bearer token for a caller of dblock serve, and print it.

    \b
      dblock token billing --tokens /etc/dblock/tokens.toml --names billing/

    The file gets the token's hash only: nothing shows the token again. To take a token back, delete
    its entry from the file. A running service reads the file again when it has changed.
    """
    with _extra():
        from .serve.tokens_file import add, caller
    with arguments():
        made_for = caller(name, names, tuple(dict.fromkeys(rights)))
    with arguments("--tokens"):
        made = add(tokens, made_for)
    click.echo(made)
    return exits.OK
