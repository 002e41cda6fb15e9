"""A pytest plug-in: whatever else is installed, the code under test is that of this copy."""

from __future__ import annotations

from pathlib import Path

import dblock


def pytest_configure() -> None:
    found = Path(dblock.__file__).resolve()
    here = Path.cwd().resolve()
    assert found.is_relative_to(here), f"{found} would be tested instead of {here}"
