"""``python -m tests.lowest``: the lowest versions of pyproject.toml, as pip's constraints.

``.ci/lowest`` installs them and runs tests with them, so that each bound is a promise that is kept.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"

#: What users install; what the other groups have is the project's own tools, the newest of each.
GROUPS = ("drivers", "fastapi", "test-mysqlclient")

_REQUIREMENT = re.compile(r"(?P<name>[\w-]+)(?P<extras>\[[\w,]+\])?>=(?P<lowest>[\d.]+)(;.*)?$")


def lowest() -> Iterator[str]:
    """Yield ``name==version`` for what users install. Raises where one has no bound."""
    declared = tomllib.loads(PYPROJECT.read_text())
    wanted: list[str] = [*declared["project"]["dependencies"]]
    for requirements in declared["project"]["optional-dependencies"].values():
        wanted += requirements
    for group in GROUPS:
        wanted += declared["dependency-groups"][group]
    for requirement in wanted:
        if requirement.startswith("dblock["):
            continue
        found = _REQUIREMENT.match(requirement)
        if found is None:
            raise ValueError(f"{requirement!r} declares no lowest version")
        yield f"{found['name']}=={found['lowest']}"
        if found["name"] == "psycopg":  # its compiled part has the same version
            yield f"psycopg-binary=={found['lowest']}"


if __name__ == "__main__":
    print(*sorted(set(lowest())), sep="\n")
