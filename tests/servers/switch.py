"""Runs inside a network namespace and holds another one next to it; a script, run by a test.

It tells the other one's process id, then runs the commands that it reads from its standard input,
one JSON list a line, and answers each with its exit code and output. It ends, and both namespaces
with it as soon as nothing else is in them, when that pipe does: however the test process ended.
"""

from __future__ import annotations

import json
import subprocess
import sys

# Waits for the end of its standard input, having said that it is there.
_PEER = "import sys; print(flush=True); sys.stdin.read()"


def main() -> None:
    peer = subprocess.Popen(
        ["unshare", "--net", "--", sys.executable, "-I", "-c", _PEER, *sys.argv[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert peer.stdout is not None
    if not peer.stdout.readline():
        sys.exit("the second namespace was not made")
    print(peer.pid, flush=True)
    for line in sys.stdin:
        done = subprocess.run(
            json.loads(line), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        print(json.dumps([done.returncode, done.stdout + done.stderr]), flush=True)


if __name__ == "__main__":
    main()
