"""Plant each mutant in a copy of the tree and see whether its test fails there."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.code import Code
from tests.mutants.copy import ROOT, Copy, Verdict
from tests.mutants.guards import guards_of
from tests.mutants.mutant import Mutant
from tests.servers import Server, shared_mariadb, shared_postgresql
from tests.servers.mariadb import VARIABLE as MARIADB
from tests.servers.postgresql import VARIABLE as POSTGRESQL

# A test that takes so much longer with a mutant than without one waits for ever: it has noticed it.
TIMES_LONGER, SPARE_SECONDS = 10, 5.0
# So often is one planted before it counts as a survivor: not every run of a test sees a race.
TIMES = 2


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("-k", metavar="NAME", default="", help="only mutants with this in the name")
    parser.add_argument("-j", metavar="N", type=int, default=2, help="so many at a time")
    parser.add_argument(
        "--beyond-simulation",
        action="store_true",
        help="only those that the simulation does not kill by itself",
    )
    parser.add_argument(
        "--tests-of",
        metavar="NAME",
        help="plant nothing: print the tests that guard a function, class, module, file or folder",
    )
    options = parser.parse_args(arguments)
    if options.tests_of:
        try:
            print(guards_of(options.tests_of, Code(ROOT), CATALOGUE), end="")
        except LookupError as error:
            parser.error(str(error))
        return 0
    chosen = [mutant for mutant in CATALOGUE if options.k in mutant.name]
    if not chosen:
        parser.error(f"no mutant has {options.k!r} in its name")
    if options.beyond_simulation:
        chosen = [mutant for mutant in chosen if not mutant.dies_in]
    code = Code(ROOT)
    planted = {mutant: mutant.plant(code) for mutant in chosen}
    with ExitStack() as stack:
        # Given to all the copies, so that not each of them starts its own.
        servers: dict[str, Server] = {
            POSTGRESQL: stack.enter_context(shared_postgresql()),
            MARIADB: stack.enter_context(shared_mariadb()),
        }
        environment = {name: server.url for name, server in servers.items()}
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-")))
        copies = [Copy(directory / str(job), environment) for job in range(options.j)]
        times = Times(directory / "times")
        if not times.measure(copies[0], chosen, options.j):
            return 1
        chosen.sort(key=times.expected, reverse=True)  # none of the slow ones at the end, alone
        return judge({mutant: planted[mutant] for mutant in chosen}, copies, times)


class Times:
    """How long tests take without a mutant, in this run: on a busy machine that is longer."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, dict[str, float]] = {}

    def measure(self, copy: Copy, mutants: Sequence[Mutant], jobs: int) -> bool:
        """Run the tests; return whether all of them pass."""
        tests = sorted({mutant.test for mutant in mutants})
        verdict = copy.run(tests, "-n", str(jobs), f"--times={self._file}")
        if verdict.word != "passed":
            print(verdict.output)
            print("The tests do not pass without a mutant, so they tell nothing.")
            return False
        print(f"{len(tests)} tests pass unmutated.", flush=True)
        self._seconds = json.loads(self._file.read_text())
        return True

    def _of(self, mutant: Mutant) -> list[float]:
        """Those of its tests: it may name one for each of several parameters, or a file of them."""
        return [
            sum(phases.values())
            for test, phases in self._seconds.items()
            if test == mutant.test or test.startswith((f"{mutant.test}[", f"{mutant.test}::"))
        ]

    def expected(self, mutant: Mutant) -> float:
        return sum(self._of(mutant))

    def limit(self, mutant: Mutant) -> float:
        """How long one test may take. What others found set up, it may have to set up itself."""
        longest = max(phases.get("setup", 0.0) for phases in self._seconds.values())
        return SPARE_SECONDS + longest + TIMES_LONGER * max(self._of(mutant))


def judge(
    planted: Mapping[Mutant, tuple[str, str]],
    copies: Sequence[Copy],
    times: Times,
) -> int:
    """Test mutants, each of which has a file become another text; return the exit code.

    The survivors are named at the end, which is all of a long output that some show.
    """
    start, free = time.monotonic(), SimpleQueue[Copy]()
    for copy in copies:
        free.put(copy)

    def test(mutant: Mutant) -> list[Verdict]:
        verdicts: list[Verdict] = []
        limit = times.limit(mutant)
        # Its process may wait for ever at its end, too.
        within = times.expected(mutant) + limit + SPARE_SECONDS
        options = "-n", "0", f"--timeout={limit:.1f}"
        copy = free.get()
        try:
            with copy.planted(*planted[mutant]):
                while len(verdicts) < TIMES and all(one.word == "passed" for one in verdicts):
                    verdicts.append(copy.run([mutant.test], *options, within=within))
        finally:
            free.put(copy)
        return verdicts

    alive = list[str]()
    with ThreadPoolExecutor(len(copies)) as pool:
        tests = {pool.submit(test, mutant): mutant for mutant in planted}
        try:
            for done in as_completed(tests):
                word = tell(tests[done], done.result())
                if word != "killed":
                    alive.append(f"{word:9} {tests[done].name}")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    took, tested = time.monotonic() - start, len(planted)
    print(f"{tested - len(alive)} of {tested} mutants were killed in {took:.0f} s.")
    print(*alive, sep="\n", end="\n" if alive else "", flush=True)
    return 1 if alive else 0


def tell(mutant: Mutant, verdicts: Sequence[Verdict]) -> str:
    """Tell what became of one, the last time it was planted; return the word for that."""
    verdict, again = verdicts[-1], " the 2nd time" if len(verdicts) > 1 else ""
    word = {"failed": "killed", "passed": "SURVIVED"}.get(verdict.word, "NOT RUN")
    print(f"{word + again:9} {mutant.name}: {mutant.promise}")
    print(f"          {mutant.test} ({verdict.seconds:.1f} s)")
    if word == "killed":  # a mutant that does not even run would be killed by anything: look here
        print(f"          {reason(verdict.output)}", flush=True)
    else:
        print(verdict.output, flush=True)
    return word


def reason(output: str) -> str:
    """The first line of what went wrong, of pytest's report."""
    lines = (line[1:].strip() for line in output.splitlines() if line.startswith("E  "))
    return next(lines, "no reason given")


if __name__ == "__main__":
    sys.exit(main())
