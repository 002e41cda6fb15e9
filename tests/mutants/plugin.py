"""A pytest plug-in: the code under test is this copy's, and how long each test took is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dblock


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=Path, help="a file for the seconds of each test's phases")


def pytest_configure(config: pytest.Config) -> None:
    found = Path(dblock.__file__).resolve()
    here = Path.cwd().resolve()
    assert found.is_relative_to(here), f"{found} would be tested instead of {here}"
    file: Path | None = config.getoption("times")
    if file is not None and not hasattr(config, "workerinput"):  # xdist's workers report to this
        config.pluginmanager.register(Times(file))


class Times:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, dict[str, float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds.setdefault(report.nodeid, {})[report.when] = report.duration

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._seconds))
