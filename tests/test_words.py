"""Everything that users read keeps one rule: a sentence names its actor, in the words of the field.
The comments and docstrings of the code keep it too, within a budget.

If a test fails here, do not only swap the word. Read the whole sentence, and say who does what.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from dblock.__main__ import app
from docs import hooks

ROOT = Path(__file__).parent.parent
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
    ROOT / "benchmarks" / "README.md",
]
# The texts in tables.py are comments in users' databases: to change one takes a migration.
CODE = sorted({*(ROOT / "dblock").rglob("*.py")} - {ROOT / "dblock" / "schema" / "tables.py"})

#: What no text says, and what it says instead. "^" is where a sentence begins.
RULES = {
    r"^who|whoever": "the holder, a waiter, the caller, a client, an operator",
    r"(the one|all|those|they|one) who": "every waiter; callers that; a process that",
    r"who ha[sd] (it|the \w+)": "the holder",
    r"(some|any|every)body|nobody else": "another process, an operator, each waiter, no other",
    r"^what (is|was|has)": "the record, the changes, the output: the thing's name",
    r"^(of|those) (?=\w)": "the actor first",
    r"that of(?! course)|those (of|that)": "the noun again: the holder's fence",
    r"of (yours|theirs|dblock's)(?! \w)": "your own function; one of dblock's connections",
    r"so (many|long)(?! as)": "at most N; N seconds",
    r"each (half )?(second|minute|hour|day)": "every second",
    r"mend(s|ed|ing)?": "fix, repair",
    r"in vain": "without success, until its timeout",
    r"(is|are|was|were|be|been|being) told": "dblock tells the holder; the holder gets LockLost",
    r"makes? none": "creating one does no I/O",
    r"(gives?|gave|given|giving)( \w+){0,2} back": "release the lock; return the connection",
    r"(waiters?|they|it|others) looks?(?! (for|at|like))|looks? (again|each)|a look(?!-)": "poll",
    r"hears?|heard": "learn of; receive; be notified",
    r"runs? out": "expire",
    r"anew": "again; a new one; restart; reconnect",
    r"all else": "everything else",
    r"all the same": "anyway; still",
    r"without end": "forever; no waiter starves",
    r"some (hundred|thousand|\d+)": "a few hundred; about 250",
    r"the (latter|former)": "the noun again",
    r"bears?": "tolerate",
    r"in the way of": "block, delay",
}

#: Words that stand for an actor without naming it. The comments and docstrings of the code, private
#: ones too, have few of them: a sentence names the holder, the waiter, the caller, the server.
UNNAMED = re.compile(
    r"\b(who|whoever|so many|so long|those|what is|that of|one who|one that)\b", re.IGNORECASE
)
#: How many of them 1,000 words may have. It may only shrink: rewrite sentences, do not raise it.
BUDGET = 0.3


def compiled(rule: str) -> re.Pattern[str]:
    starts = r"(?:(?<=^)|(?<=[.:!?] )|(?<=\*\*))"
    return re.compile(rf"\b(?:{rule})\b".replace("^", starts), re.IGNORECASE)


REFUSED = {compiled(rule): advice for rule, advice in RULES.items()}


def refused(texts: Iterable[str]) -> list[str]:
    """Return each place that breaks a rule, and what to write there."""
    return [
        f"{text[max(0, hit.start() - 50) : hit.end() + 50]!r}: for {hit[0]!r} write: {advice}"
        for text in texts
        for pattern, advice in REFUSED.items()
        for hit in pattern.finditer(text)
    ]


def prose(markdown: str) -> Iterator[str]:
    """A page's paragraphs, items and cells: no code, no addresses, and no headings, which have
    anchors."""
    markdown = re.sub(r"^( *)```.*?^\1```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    markdown = re.sub(r"^#.*$|<!--.*?-->", "", markdown, flags=re.MULTILINE)
    markdown = re.sub(r"`[^`]+`", "`code`", markdown)
    yield from paragraphs(re.sub(r"\]\([^)]*\)", "]", markdown))


def paragraphs(text: str) -> Iterator[str]:
    for part in re.split(r"\n\s*\n|\n\s*(?=[-*:] )|\|", text):
        yield " ".join(part.split()).lstrip("-*: ")


def messages(file: Path) -> Iterator[str]:
    """A file's strings, its docstrings left out: they are on a page of the reference, or private.

    A value within a string is "N".
    """
    parts = set[int]()
    for node in ast.walk(ast.parse(file.read_text())):  # a string comes before its parts
        if isinstance(node, ast.Expr):
            parts.add(id(node.value))
        if id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            parts.update(map(id, node.values))
            yield from paragraphs(
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "N"
                    for part in node.values
                )
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from paragraphs(node.value)


def test_the_rules() -> None:
    """They refuse private language, and let the same words pass where they are plain."""
    for text in (
        "Whoever has it goes on.",
        "It waits. Who comes second waits too.",
        "At most so many at a time",
        "Nobody else has it, and the fence is larger than that of the holder before.",
        "dblock gives the lock back, and somebody is told.",
        "**Those that wait** look again each half second.",
    ):
        assert refused([text]), text
    for text in (
        "The process who-am-i asks who waits; dblock lists every waiter.",
        "A waiter looks for its token, and looks at the row. That, of course, is a look-alike.",
        "The rest of dblock's tables stay. It takes so long as there is a waiter.",
        "Return what is read; list of those there.",
    ):
        assert refused([text]) == [], text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page(page: Path) -> None:
    """The pages of the reference have the public docstrings in them."""
    assert refused(prose(hooks.filled(page.read_text(), page.name))) == []


@pytest.mark.parametrize("name", app.commands)
def test_a_help_text(name: str) -> None:
    assert refused(paragraphs(hooks.usage(name, app.commands[name]))) == []


def test_messages() -> None:
    found = {str(file.relative_to(ROOT)): refused(messages(file)) for file in CODE}
    assert {file: places for file, places in found.items() if places} == {}


def notes(source: str) -> Iterator[str]:
    """A module's comments and docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def counted(source: str) -> tuple[int, int]:
    """Return the words in a module's comments and docstrings, and the ones that name no actor."""
    said = list(notes(source))
    words = sum(len(re.findall(r"[A-Za-z']+", text)) for text in said)
    return words, sum(len(UNNAMED.findall(text)) for text in said)


def test_what_is_counted() -> None:
    assert counted('"""Who waits, waits."""\nlimit = "whoever"  # so many waiters\n') == (6, 2)


def test_the_code_names_its_actors() -> None:
    files = {
        str(file.relative_to(ROOT)): counted(file.read_text())
        for file in sorted((ROOT / "dblock").rglob("*.py"))
    }
    words, unnamed = (sum(column) for column in zip(*files.values(), strict=True))
    worst = sorted(files.items(), key=lambda item: -item[1][1])[:10]
    rate = 1000 * unnamed / words
    assert rate <= BUDGET, (
        f"{rate:.1f} in 1,000 words of comments and docstrings name no actor, and {BUDGET} may. "
        "Most of them are in:\n"
        + "\n".join(f"{count} of {total} words: {file}" for file, (total, count) in worst)
    )
