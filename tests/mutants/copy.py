"""A copy of the tree, in which one mutant after the other is planted and tested."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TREE = ("dblock", "migrations", "tests", "examples", "pyproject.toml", "alembic.ini", "README.md")
PASSED, FAILED = 0, 1  # pytest's exit codes; all others mean that the test was not run


class Verdict(NamedTuple):
    word: str
    output: str
    seconds: float


class Copy:
    """Kept from mutant to mutant, so that Python compiles what does not change but once."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory / "tree"
        self._output = directory / "output"
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self._environment = {**inherited, **environment, "PYTHONPATH": str(self.directory)}
        for part in TREE:
            source, target = ROOT / part, self.directory / part
            if source.is_dir():
                ignore = shutil.ignore_patterns("__pycache__", ".*")
                shutil.copytree(source, target, ignore=ignore)
            else:
                shutil.copy2(source, target)

    @contextmanager
    def planted(self, file: str, text: str) -> Iterator[None]:
        """Have another text in a file for a while."""
        original = (self.directory / file).read_text()
        self._write(file, text)
        try:
            yield
        finally:
            self._write(file, original)

    def _write(self, file: str, text: str) -> None:
        path = self.directory / file
        path.write_text(text)
        # Python sees by the size and the second whether these are out of date: not if both agree.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()

    def run(self, tests: Sequence[str], *options: str, within: float | None = None) -> Verdict:
        """Run tests with pytest, which is killed when it takes longer than ``within`` seconds."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.mutants.plugin"]
        command += ["-p", "no:cacheprovider", *options, *tests]
        words = {PASSED: "passed", FAILED: "failed"}
        start = time.monotonic()
        with self._output.open("w") as output:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            try:
                word = words.get(process.wait(within), "not run")
            except subprocess.TimeoutExpired:
                word = "failed"
                output.write(f"\nE  did not end in {within:.0f} s, and was killed\n")
            finally:
                with suppress(ProcessLookupError):  # also what it leaves behind
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return Verdict(word, self._output.read_text(errors="replace"), time.monotonic() - start)
