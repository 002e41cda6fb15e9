"""The URLs of a command line, from its options or from the environment."""

from __future__ import annotations

import os
import re

import click
from click.core import ParameterSource

from .url_file import UrlFile


class Urls(click.types.StringParamType):
    """URLs. A variable has them with white space between them; a path in one may have a space."""

    def split_envvar_value(self, rv: str) -> list[str]:
        return re.split(r"\s+(?=[\w+]+://)", rv.strip())


def refuse_empty(ctx: click.Context) -> None:
    """Refuse variables that are set but empty, as ``DBLOCK_URL=$URL`` makes them without a ``URL``.

    click takes them for unset. Then each host would have its locks in a file of its own.
    """
    given = {
        param.name
        for param in ctx.command.params
        if ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    }
    if given & {"url", "url_file"}:
        given |= {"url", "url_file"}
    for param in ctx.command.params:
        variable = param.envvar
        if param.name in given or not isinstance(variable, str):
            continue
        if not os.environ.get(variable, variable).strip():
            raise click.UsageError(
                f"{variable} is set but empty: set it to a value, or unset it for the default of "
                f"{param.opts[0]}"
            )


def given_urls(
    ctx: click.Context, urls: tuple[str, ...], file: str | None
) -> tuple[tuple[str, ...], UrlFile | None]:
    """Return the URLs from --url or --url-file, or else from the environment; and their file."""
    if urls and file is not None:
        direct, indirect = map(ctx.get_parameter_source, ("url", "url_file"))
        if direct is indirect:
            raise click.UsageError(
                "give either --url or --url-file, and set either DBLOCK_URL or DBLOCK_URL_FILE"
            )
        if direct is ParameterSource.COMMANDLINE:
            file = None
    if file is None:
        return tuple(url.strip() for url in urls), None
    try:
        found = UrlFile(file)
    except ValueError as error:
        raise click.UsageError(f"{given_by(ctx, 'url_file')}: {error}") from error
    return found.urls, found


def given_by(ctx: click.Context, name: str) -> str:
    """Name the option, or the variable, that a parameter was given by."""
    if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        return f"--{name.replace('_', '-')}"
    return f"DBLOCK_{name.upper()}"
