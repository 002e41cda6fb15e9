"""The site of the docs, as it is built, in a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import find_or_skip
from tests.examples.browser import Browser
from tests.test_docs import ROOT

#: What the button of a block of code copies: the theme marks the block while it reads it.
COPIED = """const code = arguments[0]
code.setAttribute("data-md-copying", "")
return code.innerText"""


def test_commands_are_copied_without_their_prompts(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    with find_or_skip(Browser) as browser:
        browser.chrome.get((tmp_path / "cron" / "index.html").as_uri())
        block = browser.find(".highlight code:has(.gp)")
        assert block.text == "$ dblock run nightly --nonblock -- ./backup.sh"
        copied = browser.chrome.execute_script(COPIED, block)
    assert copied.rstrip() == "dblock run nightly --nonblock -- ./backup.sh"
