"""A connection of psycopg's in the hands of the user: what it says of itself, psycopg would say."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from dblock.dialects.adapter import Answer
from tests.simulation.lending import LentConnection, Statement


class LentPsycopg(LentConnection):
    """A connection whose transactions begin with a statement."""

    autocommit = False
    #: What :func:`dblock.dialects.postgresql.read_deadline.bound` sets, beside a ``wait``.
    read_within: float

    @property
    def broken(self) -> bool:
        return self.closed

    @property
    def pgconn(self) -> Any:
        return SimpleNamespace(transaction_status=self._driver.transaction, pipeline_status=0)

    @property
    def is_bounded(self) -> bool:
        return "wait" in vars(self)

    def settings(self) -> object:
        return super().settings(), self.is_bounded, self.autocommit

    def send(self, statement: Statement) -> Answer:
        self._link.bound = self.read_within if self.is_bounded else math.inf
        return super().send(statement)
