"""Text for people is one line that steers no terminal; ordinary text is left as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import text

from dblock.lock_state import counted, printable


@given(text())
def test_any_text_is_one_printable_line(some: str) -> None:
    assert printable(some).isprintable()
    assert printable(some) == some or not some.isprintable()


@pytest.mark.parametrize(
    "ordinary", ["", "web 1", "münchen", "夜間", "ночь", "🔒", r"C:\new", "[red]"]
)
def test_ordinary_text_stays(ordinary: str) -> None:
    assert printable(ordinary) == ordinary


@pytest.mark.parametrize(
    ("character", "shown"),
    [
        ("\n", r"\n"),
        ("\r", r"\r"),
        ("\t", r"\t"),
        ("\x1b", r"\x1b"),
        ("\x07", r"\x07"),
        ("\x9b", r"\x9b"),  # begins a sequence, as ESC [ does
        ("\x85", r"\x85"),  # ends a line, and so do the next two
        ("\u2028", r"\u2028"),
        ("\u2029", r"\u2029"),
        ("\u202e", r"\u202e"),  # what follows reads from right to left
        ("\u2066", r"\u2066"),
        ("\u200b", r"\u200b"),  # cannot be seen
        ("\udc80", r"\udc80"),  # a byte of a file name that is not UTF-8
    ],
)
def test_what_steers_is_escaped(character: str, shown: str) -> None:
    assert printable(f"a{character}b") == f"a{shown}b"


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 slots"), (1, "1 slot"), (2, "2 slots"), (1000, "1000 slots")]
)
def test_a_number_with_its_noun(number: int, said: str) -> None:
    assert counted(number, "slot") == said


def test_a_noun_with_another_plural() -> None:
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(0, "entry", "entries") == "0 entries"
