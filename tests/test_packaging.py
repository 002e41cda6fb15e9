"""What an index shows of a release: built as one is, and read as an index reads it."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.test_docs import ROOT

LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, ROOT],
        check=True,
        capture_output=True,
    )
    return directory


@pytest.fixture(params=["wheel", "sdist"])
def metadata(request: pytest.FixtureRequest, built: Path) -> Message:
    if request.param == "wheel":
        (wheel,) = built.glob("*.whl")
        with ZipFile(wheel) as packed:
            (name,) = [name for name in packed.namelist() if name.endswith("dist-info/METADATA")]
            return message_from_string(packed.read(name).decode())
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as unpacked:
        (name,) = [name for name in unpacked.getnames() if name.endswith("/PKG-INFO")]
        file = unpacked.extractfile(name)
        assert file is not None
        return message_from_string(file.read().decode())


@pytest.fixture
def description(metadata: Message) -> str:
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload()
    assert isinstance(description, str)
    return description


def test_no_link_of_the_description_breaks(description: str) -> None:
    """Only whole addresses lead somewhere from an index's page; of other links the words stay."""
    assert [to for _, to in LINK.findall(description) if not to.startswith("http")] == []
    assert "how it works" in description
    assert "![" not in description


def test_the_description_installs_from_an_index(description: str) -> None:
    """Its readers have no checkout, except for contributors."""
    commands = re.findall(r"^\$ (pip install .*)", description, re.MULTILINE)
    assert [command.split("  #")[0] for command in commands] == [
        "pip install dblock",
        "pip install 'dblock[postgresql]'",
    ]
    assert "checkout" not in description
    readme = (ROOT / "README.md").read_text()
    assert readme.count("\n## ") == description.count("\n## ")
    assert len(readme.splitlines()) - len(description.splitlines()) == 2, "one picture"


def test_extras(metadata: Message) -> None:
    """They are for users: what contributors install is in groups, which no release tells of."""
    extras = {"postgresql", "mariadb", "mysql", "django", "flask", "otel"}
    extras |= {"asyncio", "mariadb-async", "mysql-async", "sqlite-async", "serve"}
    assert set(metadata.get_all("Provides-Extra") or ()) == extras


def test_classifiers(metadata: Message) -> None:
    """That each is one that exists, the build itself has seen to."""
    classifiers = metadata.get_all("Classifier")
    assert classifiers is not None
    pythons = [
        int(found[1])
        for classifier in classifiers
        if (found := re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", classifier))
    ]
    assert pythons == list(range(min(pythons), max(pythons) + 1))
    assert metadata["Requires-Python"] == f">=3.{min(pythons)}"
    assert sys.version_info.minor in pythons
