"""What MkDocs does with the pages: their info strings, and the reference made of the docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ForwardRef
from urllib.parse import urlsplit

import click
from markdown.extensions.toc import slugify, unique
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from dblock import __version__
from dblock.__main__ import app
from dblock.handles import options

REFERENCE = Path(__file__).parent / "reference"
WIDTH = 76  # of a signature: the page has room for it beside the table of contents
# Parameters that show that a constructor is for dblock's own use.
MADE_BY_OTHERS = {
    *("alias", "args", "campaign", "database", "home", "job", "locks", "locks_of", "store", "sync"),
}


def on_config(config: MkDocsConfig) -> None:
    """Called by MkDocs first. The header has the version, and the repository if it is known."""
    config.site_name += f" {__version__}"
    project = tomllib.loads(Path(config.config_file_path).with_name("pyproject.toml").read_text())
    if url := project["project"].get("urls", {}).get("Repository"):
        config.repo_url, config.repo_name = url, urlsplit(url).path.strip("/")


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return filled(markdown, Path(page.file.src_uri).name)


def filled(markdown: str, page: str) -> str:
    """Return the Markdown of a page with that file name, with the reference in its places."""
    # "```python settings" tells the tests where a snippet belongs; to Markdown it is no language.
    markdown = re.sub(r"^```(\w+) .+$", r"```\1", markdown, flags=re.MULTILINE)
    markdown = NAMES.sub(lambda match: names(match, page), markdown)
    return re.sub(r"^<!-- help of dblock -->$", commands, markdown, flags=re.MULTILINE)


def on_page_content(html: str, page: Page, files: Files, **_: Any) -> str:
    """Called by MkDocs for each page: in a signature the names of classes are links."""
    if not page.file.src_uri.startswith("reference/"):
        return html

    def link(match: re.Match[str]) -> str:
        target = where(match[2], Path(page.file.src_uri).name)
        if target is None:
            return match[0]
        name, anchor = target.split("#")
        file = files.get_file_from_path(f"reference/{name}")
        assert file is not None
        return (
            f'{match[1]}<a href="{file.url_relative_to(page.file)}#{anchor}">{match[2]}</a></span>'
        )

    return re.sub(r'(<span class="n[ce]?">)([A-Z]\w+)</span>', link, html)


#: Stands for the reference of a module: of the names given, or of all that it has for users.
NAMES = re.compile(r"^<!-- names of ([\w.]+)(?:: ([\w ]+))? -->$", re.MULTILINE)


def things(match: re.Match[str]) -> Iterator[tuple[str, Any]]:
    """Yield the names of a module that a page asks for, and what they name."""
    module: ModuleType = importlib.import_module(match[1])
    for name in match[2].split() if match[2] else module.__all__:
        yield name, getattr(module, name)


def names(match: re.Match[str], page: str) -> str:
    """Return the reference of a module's names, with links to other entries."""
    public = getattr(importlib.import_module(match[1]), "__all__", ())
    parts: list[str] = []
    for name, thing in things(match):
        parts += [f"## {name}"]
        if match[1] != "dblock" and name in public:
            parts += [f"`from {match[1]} import {name}`"]
        parts += entry(thing, name, page)
    return "\n\n".join(parts)


def entry(thing: Any, name: str, page: str) -> Iterator[str]:
    yield from about(thing, name, name, page)
    if not inspect.isclass(thing):
        return
    bases = [base.__name__ for base in thing.__mro__[1:] if base in documented()]
    if bases and not issubclass(thing, Exception):
        links = ", ".join(f"[`{base}`]({where(base, page)})" for base in bases)
        yield f"It also has the members of {links}."
    for own, member in members(thing):
        yield f"### {name}.{own}"
        yield from about(member, own, name, page)


@cache
def documented() -> dict[Any, str]:
    """Return what has an entry, and the page where that is."""
    pages = sorted(REFERENCE.glob("*.md"), key=lambda page: (page.stem == "asyncio", page))
    return {
        thing: page.name
        for page in reversed(pages)
        for match in NAMES.finditer(page.read_text())
        for _, thing in things(match)
    }


@cache
def anchors(page: str) -> dict[str, str]:
    """Return the names that have an entry on a page, and the entries' anchors."""
    titles = re.findall(r"^#+ (.+)$", NAMES.sub(headings, (REFERENCE / page).read_text()), re.M)
    taken: set[str] = set()
    return {title: f"{page}#{unique(slugify(title, '-'), taken)}" for title in titles}


def headings(match: re.Match[str]) -> str:
    """Return the headings of what :func:`names` returns."""
    titles = []
    for name, thing in things(match):
        own = members(thing) if inspect.isclass(thing) else ()
        titles += [name, *(f"{name}.{member}" for member, _ in own)]
    return "\n".join(f"# {title}" for title in titles)


def where(name: str, page: str) -> str | None:
    """Return the link from a page to the entry of a name, if it has one; its own page's first."""
    for other in dict.fromkeys((page, *reversed(documented().values()))):
        if name in anchors(other):
            return anchors(other)[name]
    return None


def commands(_: re.Match[str]) -> str:
    """Return what the command line says of itself."""
    told = [("dblock", app)] + [(f"dblock {name}", one) for name, one in app.commands.items()]
    return "\n\n".join(f"## {name}\n\n```text\n{usage(name, one)}\n```" for name, one in told)


def usage(name: str, command: click.Command) -> str:
    return command.get_help(click.Context(command, info_name=name, max_content_width=88))


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class of dblock's has for users, and its bases that no entry of a base has."""
    found: dict[str, Any] = {}
    bases = [base for base in kind.__mro__[1:] if base in documented()]
    for own in reversed(kind.__mro__):
        if own.__module__.startswith("dblock") and not any(issubclass(base, own) for base in bases):
            found |= vars(own)
    for name, member in found.items():
        if not (inspect.isroutine(member) or isinstance(member, property)):
            continue
        doc = " ".join((inspect.getdoc(member) or "").lower().split())
        inside = name.startswith("_") or "not part of the public surface" in doc
        if doc and not inside:
            yield name, member


def about(thing: Any, name: str, inside: str, page: str) -> Iterator[str]:
    """The signature, where a user has use for it, and the docstring."""
    if told := signature(thing, name):
        yield f"```python\n{told}\n```"
    doc = inspect.getdoc(thing) or ""
    doc = re.sub(r"^(``.+)\n {4}(?=\S)", r"\n\1\n:   ", doc, flags=re.MULTILINE)
    yield linked(doc, inside, page).replace("``", "`").replace("::\n", ":\n")


class Bare(str):
    """A type as it is written. Python's own signatures have quotes around it."""

    __repr__ = str.__str__


def bare(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return annotation
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return Bare(re.sub(r"\b(?:[a-z]\w*\.)+(?=\w)", "", text))


def signature(thing: Any, name: str) -> str | None:
    """Return how a thing is called: on one line, or one line a parameter."""
    if isinstance(thing, property):
        return f"{name}: {bare(inspect.signature(thing.fget).return_annotation)}"  # type: ignore[arg-type]
    if inspect.isclass(thing) and issubclass(thing, Exception | Enum):
        bases = ", ".join(base.__name__ for base in thing.__bases__)
        values = thing if issubclass(thing, Enum) else ()
        body = "".join(f'\n    {value.name} = "{value.value}"' for value in values)
        return f"class {name}({bases})" + (f":{body}" if body else "")
    if not callable(thing):
        return None
    told = with_options(inspect.signature(thing))
    if inspect.isclass(thing) and MADE_BY_OTHERS & set(told.parameters):
        return None
    parameters = [
        parameter.replace(annotation=bare(parameter.annotation))
        for parameter in told.parameters.values()
        if parameter.name != "self" and not parameter.name.startswith("_")
    ]
    gives = inspect.Signature.empty if inspect.isclass(thing) else bare(told.return_annotation)
    line = f"{name}{told.replace(parameters=parameters, return_annotation=gives)}"
    if len(line) > WIDTH:
        arrow = "" if gives is inspect.Signature.empty else f" -> {gives}"
        line = "\n".join([f"{name}(", *(f"    {one}," for one in marked(parameters)), f"){arrow}"])
    return line.replace("'", '"')


def with_options(told: inspect.Signature) -> inspect.Signature:
    """Return a signature with the single options in the place of ``**options: Unpack[...]``."""
    if "options" not in told.parameters:
        return told
    *others, last = told.parameters.values()
    unpacked = re.fullmatch(r"Unpack\[(\w+)\[(\w+)\]\]", str(last.annotation))
    if unpacked is None:
        return told
    keywords = getattr(options, unpacked[1])
    defaults = inspect.signature(options.lease_options).parameters
    single = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults[name].default,
            annotation=re.sub(r"\bR\b", unpacked[2], bare(annotation)),
        )
        for name, annotation in keywords.__annotations__.items()
    ]
    own = {parameter.name for parameter in others if parameter.kind is parameter.KEYWORD_ONLY}
    single.sort(key=lambda one: list(defaults).index(one.name))
    return told.replace(parameters=[*others, *(one for one in single if one.name not in own)])


def marked(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Yield the parameters, and the marks between those of different kinds."""
    kinds = [parameter.kind for parameter in parameters]
    for index, parameter in enumerate(parameters):
        before = kinds[:index]
        if parameter.kind is parameter.KEYWORD_ONLY and not (
            {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL} & set(before)
        ):
            yield "*"
        yield str(parameter)
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.kind not in kinds[index + 1 :]:
            yield "/"


#: What may name another entry: a role, a name in code, an error or another name of two words. The
#: first kinds are code, which has no links.
MENTION = re.compile(
    r"(?P<code>::(?:\n(?: {4}.*)?)+|^(?:>>>|\.\.\.) .*$)"
    r"|:\w+:`~?\.*(?P<role>[\w.]+)`|``(?P<span>[A-Z][\w.]+)``|``[^`]+``|(?<![\w.`/])(?P<word>[A-Z]\w*[a-z]\w*)\b",
    re.MULTILINE,
)


def linked(doc: str, inside: str, page: str) -> str:
    """Return a docstring with links to the entries of the names that it mentions."""

    def link(match: re.Match[str]) -> str:
        word = match["word"]
        if not (mentioned := word or match["role"] or match["span"]):
            return match[0]
        name = re.sub(r"^dblock\.(?:[a-z]\w*\.)*(?=\w)", "", mentioned)
        if word and not (re.search("[a-z][A-Z]", word) or word in anchors("errors.md")):
            return word
        target = None if word == inside else where(f"{inside}.{name}", page) or where(name, page)
        shown = word or f"`{name}`"
        return shown if target is None else f"[{shown}]({target})"

    return MENTION.sub(link, doc)
