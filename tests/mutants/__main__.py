"""Plant each mutant in a copy of the tree and see whether its test fails there."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.code import Code
from tests.mutants.mutant import Mutant
from tests.servers import Server, shared_mariadb, shared_postgresql
from tests.servers.mariadb import VARIABLE as MARIADB
from tests.servers.postgresql import VARIABLE as POSTGRESQL

ROOT = Path(__file__).parents[2]
TREE = ("dblock", "migrations", "tests", "pyproject.toml", "alembic.ini", "README.md")
TEST_SECONDS = 60  # one that waits for ever, because of the mutant, has noticed it too
PASSED, FAILED = 0, 1  # pytest's exit codes; all others mean that the test was not run


class Verdict(NamedTuple):
    word: str
    output: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("-k", metavar="NAME", default="", help="only mutants with this in the name")
    parser.add_argument("-j", metavar="N", type=int, default=2, help="so many at a time")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in CATALOGUE if options.k in mutant.name]
    if not chosen:
        parser.error(f"no mutant has {options.k!r} in its name")
    with ExitStack() as stack:
        # Given to all the copies, so that not each of them starts its own.
        servers: dict[str, Server] = {
            POSTGRESQL: stack.enter_context(shared_postgresql()),
            MARIADB: stack.enter_context(shared_mariadb()),
        }
        environment = {name: server.url for name, server in servers.items()}
        return judge(chosen, options.j, environment)


def judge(mutants: list[Mutant], jobs: int, environment: dict[str, str]) -> int:
    start = time.monotonic()
    tests = sorted({mutant.test for mutant in mutants})
    verdict = run(None, tests, environment, "-n", str(jobs))
    if verdict.word != "passed":
        print(verdict.output)
        print("The tests do not pass without a mutant, so they tell nothing.")
        return 1
    print(f"{len(tests)} tests pass unmutated.", flush=True)

    def plant(mutant: Mutant) -> tuple[Mutant, Verdict]:
        return mutant, run(mutant, [mutant.test], environment, "-n", "0")

    survivors = 0
    with ThreadPoolExecutor(jobs) as pool:
        for mutant, verdict in pool.map(plant, mutants):
            killed = verdict.word == "failed"
            survivors += not killed
            word = "killed" if killed else "SURVIVED" if verdict.word == "passed" else "NOT RUN"
            print(f"{word:9} {mutant.name}: {mutant.promise}", flush=True)
            print(f"          {mutant.test}")
            if killed:  # a mutant that does not even run would be killed by anything: look here
                print(f"          {reason(verdict.output)}", flush=True)
            else:
                print(verdict.output, flush=True)
    took = time.monotonic() - start
    print(f"{len(mutants) - survivors} of {len(mutants)} mutants were killed in {took:.0f} s.")
    return 1 if survivors else 0


def reason(output: str) -> str:
    """The first line of what went wrong, of pytest's report."""
    lines = (line[1:].strip() for line in output.splitlines() if line.startswith("E  "))
    return next(lines, "no reason given")


def run(
    mutant: Mutant | None, tests: list[str], environment: dict[str, str], *options: str
) -> Verdict:
    """Run tests on a copy of the tree, with the mutant in it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy = Path(name)
        for part in TREE:
            source = ROOT / part
            if source.is_dir():
                ignore = shutil.ignore_patterns("__pycache__", ".*")
                shutil.copytree(source, copy / part, ignore=ignore)
            else:
                shutil.copy2(source, copy / part)
        if mutant is not None:
            file, text = mutant.plant(Code(copy))
            (copy / file).write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.mutants.origin"]
        command += ["-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}", *options, *tests]
        done = subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, **environment, "PYTHONPATH": str(copy)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    words = {PASSED: "passed", FAILED: "failed"}
    return Verdict(words.get(done.returncode, "not run"), done.stdout)


if __name__ == "__main__":
    sys.exit(main())
