"""Make what the stores of all processes begin with, in a folder that is given."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.simulation.stores import prepare

prepare(Path(sys.argv[1]))
