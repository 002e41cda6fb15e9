"""One command writes the golden pages: ``python -m tests.golden``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.browser import IMAGES
from tests.golden import KINDS, PICTURED, ROOT, main, write


def test_the_pages_that_have_changed_are_written(tmp_path: Path) -> None:
    same, other, new = (tmp_path / name for name in ("same", "other", "new"))
    same.write_text("a\n")
    other.write_text("b\n")
    pages = {same: "a\n", other: "c\n", new: "d\n"}
    assert write(pages) == [other, new]
    assert {file: file.read_text() for file in pages} == pages
    assert write(pages) == []


@pytest.mark.parametrize("kind", ["sql", "traces"])
def test_no_page_is_left_over(kind: str) -> None:
    pages = KINDS[kind]()
    assert {file for folder in {file.parent for file in pages} for file in folder.iterdir()} == {
        *pages
    }


def test_each_picture_is_taken_by_a_test() -> None:
    tests = "".join((ROOT / file).read_text() for file in PICTURED)
    for picture in IMAGES.glob("*.png"):
        assert f'browser.picture("{picture.stem}")' in tests


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["traces", "sq"])
    assert "sq is not one of sql, traces, matrix, pictures" in capsys.readouterr().err
