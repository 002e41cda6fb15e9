"""The network that can be cut does what the tests of silent loss rely on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import find_or_skip
from tests.servers import PostgreSQL, ServerMissing, network
from tests.servers.network import Network
from tests.support import eventually

ROOT = Path(__file__).parent.parent
PORT = 5999
CONNECT = """
    import socket, sys
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.5)
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def cable() -> Iterator[Network]:
    with find_or_skip(Network) as made:
        yield made


def told(cable: Network) -> str:
    """What a client is told who connects to a port where nobody listens."""
    command = [sys.executable, "-c", textwrap.dedent(CONNECT), cable.server.address, str(PORT)]
    done = subprocess.run(
        [*cable.client.run(), *command], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("lost", [{}, {"requests": False}, {"replies": False}])
def test_a_cut_is_silent_and_can_be_mended(cable: Network, lost: dict[str, bool]) -> None:
    assert told(cable) == "ConnectionRefusedError"
    cable.cut(**lost)
    assert told(cable) == "TimeoutError"
    cable.restore()
    assert told(cable) == "ConnectionRefusedError"


@pytest.mark.parametrize("lacking", ["tools", "rights"])
def test_a_machine_that_cannot_says_so_in_one_line(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking == "tools":
        monkeypatch.setattr(network, "_find", lambda tool: None)
    else:
        monkeypatch.setattr(network, "_tool", lambda tool: "false")
    with pytest.raises(ServerMissing, match=r"\ANetwork tests skipped: .*\Z"):
        Network()


NETWORK = """
    import sys
    from tests.servers.far import FarPostgreSQL
    from tests.servers.network import Network
    network = Network().__enter__()
    server = FarPostgreSQL(network).__enter__()
    print(network.server.pid, network.directory, server.directory, flush=True)
    sys.stdin.read()
"""


def test_no_network_namespace_outlives_the_tests() -> None:
    find_or_skip(Network).close()
    find_or_skip(PostgreSQL).close()
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(NETWORK)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        assert tests.stdout is not None
        pid, *directories = tests.stdout.readline().split()
        namespace = os.readlink(f"/proc/{pid}/ns/net")
        assert namespaces().count(namespace) > 1, "nothing but its first process runs in it"
        os.kill(tests.pid, signal.SIGKILL)
    eventually(lambda: namespace not in namespaces())
    eventually(lambda: not any(Path(directory).exists() for directory in directories))


def namespaces() -> list[str]:
    """The network namespace of each process that may be asked."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(process / "ns" / "net"))
    return found
