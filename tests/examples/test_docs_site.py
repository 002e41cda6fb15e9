"""The site of the docs, as it is built, in a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from mkdocs.config.defaults import MkDocsConfig

from dblock import __version__
from docs.hooks import on_config
from tests.conftest import find_or_skip
from tests.examples.browser import Browser
from tests.test_docs import ROOT

#: What the button of a block of code copies: the theme marks the block while it reads it.
COPIED = """const code = arguments[0]
code.setAttribute("data-md-copying", "")
return code.innerText"""

PICTURES = sorted((ROOT / "docs" / "images").glob("*.svg"))
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]

#: The words of a picture that do not fit: out of the picture, out of their box, or over others.
MISPLACED = """const paper = document.documentElement.viewBox.baseVal
const words = [...document.querySelectorAll("text")].map(
    text => [text.textContent, text.getBBox()])
const boxes = [...document.querySelectorAll(".note, .good, .bad")].map(box => box.getBBox())
const inside = (a, b) => a.x >= b.x && a.y >= b.y && a.x + a.width <= b.x + b.width
    && a.y + a.height <= b.y + b.height
const meet = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width
    && a.y < b.y + b.height && b.y < a.y + a.height
return [...words.entries()].filter(([index, [_, word]]) => !inside(word, paper)
    || boxes.some(box => meet(word, box) && !inside(word, box))
    || words.slice(index + 1).some(([_, other]) => meet(word, other))).map(([_, [text]]) => text)"""


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_has_a_title_and_a_page(picture: Path) -> None:
    svg = ElementTree.parse(picture).getroot()
    title = svg.findtext("{http://www.w3.org/2000/svg}title")
    assert title
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == title
    assert any(f"images/{picture.name}" in page.read_text() for page in PAGES)


def test_the_words_of_pictures_fit() -> None:
    with find_or_skip(Browser) as browser:
        for picture in PICTURES:
            browser.chrome.get(picture.as_uri())
            assert browser.chrome.execute_script(MISPLACED) == [], picture.name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return path


def test_commands_are_copied_without_their_prompts(site: Path) -> None:
    with find_or_skip(Browser) as browser:
        browser.chrome.get((site / "cron" / "index.html").as_uri())
        block = browser.find(".highlight code:has(.gp)")
        assert block.text == "$ dblock run nightly --nonblock -- ./backup.sh"
        copied = browser.chrome.execute_script(COPIED, block)
    assert copied.rstrip() == "dblock run nightly --nonblock -- ./backup.sh"


def test_the_reference_has_the_version_and_links_to_types(site: Path) -> None:
    with find_or_skip(Browser) as browser:
        browser.chrome.get((site / "reference" / "locks" / "index.html").as_uri())
        assert f"dblock {__version__}" in browser.find(".md-header").text
        link = browser.find("#lockslease ~ .highlight a[href$='errors/#locklost']")
        assert link.text == "LockLost"
        target = str(link.get_attribute("href")).removesuffix("#locklost") + "index.html#locklost"
        browser.chrome.get(target)
        assert browser.find("#locklost").text.startswith("LockLost")


@pytest.mark.parametrize(
    "urls", ["", "[project.urls]\nRepository = 'https://code.example/us/dblock'"]
)
def test_the_repository_is_linked_if_the_project_names_it(tmp_path: Path, urls: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'dblock'\n{urls}")
    config = MkDocsConfig(str(tmp_path / "mkdocs.yml"))
    config.load_dict({"site_name": "dblock"})
    on_config(config)
    assert config.repo_url == ("https://code.example/us/dblock" if urls else None)
    assert config.repo_name == ("us/dblock" if urls else None)
