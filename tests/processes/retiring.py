"""What the processes do that use names, and retire them; apart, so that they import only this."""

from __future__ import annotations

import random
import time

from sqlalchemy import Column, Integer, MetaData, String, Table

from dblock import DBLockError, Locks, Timeouts
from dblock.protocol.retiring import retire
from tests.processes.workers import SECONDS, Say, Wait, make_engine

#: A name is retired that was not used for so long: longer than a statement may take.
IDLE, QUERY = 5.0, 2.0
NAMES = 300
JOURNAL = Table(
    "journal",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", String(20), nullable=False),
    Column("fence", Integer, nullable=False),
)


def use_names(say: Say, wait: Wait, url: str, seed: int) -> None:
    """Use one name after the other; write down each hold of a lease, while it goes on."""
    drawn, engine = random.Random(seed), make_engine(url)
    with Locks(url, timeouts=Timeouts(query=QUERY, socket=3 * QUERY)) as locks:
        while True:
            name = f"n{drawn.randrange(NAMES)}"
            try:
                if drawn.random() < 0.3:
                    with locks.row(name, wait=SECONDS):
                        pass
                with locks.lease(name, ttl=SECONDS, wait=SECONDS) as lease, engine.begin() as on:
                    on.execute(JOURNAL.insert().values(name=name, fence=lease.fence))
            except DBLockError:  # a busy machine
                continue
            time.sleep(0.03)


def retire_names(say: Say, wait: Wait, url: str) -> None:
    """Retire names over and over; say each time how many."""
    with Locks(url) as locks:
        while True:
            say(locks._database.run(retire(locks._database.exchange(timeout=SECONDS), IDLE)))
            time.sleep(0.02)
