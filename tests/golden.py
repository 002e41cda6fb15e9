"""``python -m tests.golden [KIND ...]``: write again the pages that tests compare with dblock.

sql: the statements that dblock sends, in tests/dialects/sql. traces: the steps of the protocols, in
tests/protocol/traces. matrix: the table of faults, in docs/faults.md. Without a KIND, all of these.

pictures, if asked for: the pictures in docs/images, as a browser shows the pages now. No test
compares them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.dialects import test_sql
from tests.examples.browser import IMAGES
from tests.examples.browser import PICTURES as VARIABLE
from tests.faults.matrix import page
from tests.protocol import test_traces

ROOT = Path(__file__).parents[1]
KINDS: Mapping[str, Callable[[], Mapping[Path, str]]] = {
    "sql": test_sql.pages,
    "traces": test_traces.pages,
    "matrix": page.pages,
}
PICTURES = "pictures"
#: The tests that see the pages of the pictures in a browser.
PICTURED = ("tests/examples/test_admin.py", "tests/contrib/serve/test_page.py")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m tests.golden",
        description=__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    allowed = (*KINDS, PICTURES)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(allowed)}")
    chosen = parser.parse_args(arguments).kinds
    if unknown := set(chosen) - set(allowed):
        parser.error(f"{', '.join(sorted(unknown))} is not one of {', '.join(allowed)}")
    changed = [
        file
        for kind, pages in KINDS.items()
        if kind in (chosen or KINDS)
        for file in write(pages())
    ]
    if PICTURES in chosen:
        changed += take_pictures()
    for file in changed:
        print(file.relative_to(ROOT))
    print("Read what has changed: git diff" if changed else "Nothing has changed.")
    return 0


def write(pages: Mapping[Path, str]) -> list[Path]:
    """Write the pages; return those that are not as they were before."""
    changed = [
        file for file, text in pages.items() if not file.exists() or file.read_text() != text
    ]
    for file in changed:
        file.write_text(pages[file])
    return changed


def take_pictures() -> list[Path]:
    """Run the tests that show a browser each page; return the pictures that changed."""
    before = {file: file.read_bytes() for file in IMAGES.glob("*.png")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *PICTURED]
    subprocess.run(command, cwd=ROOT, env=os.environ | {VARIABLE: "1"}, check=True)
    return [file for file in sorted(IMAGES.glob("*.png")) if file.read_bytes() != before.get(file)]


if __name__ == "__main__":
    sys.exit(main())
