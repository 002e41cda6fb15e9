"""The mutants: what each breaks, and the test that has to fail for it."""

from __future__ import annotations

from tests.mutants.catalogue.asynchronous import ASYNCHRONOUS
from tests.mutants.catalogue.by_token import BY_TOKEN
from tests.mutants.catalogue.clusters import CLUSTERS
from tests.mutants.catalogue.connections import CONNECTIONS
from tests.mutants.catalogue.contrib import CONTRIB
from tests.mutants.catalogue.costs import COST
from tests.mutants.catalogue.counters import COUNTERS
from tests.mutants.catalogue.crashes import CRASHES
from tests.mutants.catalogue.drivers import DRIVERS
from tests.mutants.catalogue.elections import ELECTIONS
from tests.mutants.catalogue.exclusion import EXCLUSION
from tests.mutants.catalogue.expiry import EXPIRY
from tests.mutants.catalogue.fencing import FENCING
from tests.mutants.catalogue.functions import FUNCTIONS
from tests.mutants.catalogue.hand_off import HAND_OFF
from tests.mutants.catalogue.handover import HANDOVER
from tests.mutants.catalogue.jobs import JOBS
from tests.mutants.catalogue.keeper import KEEPER
from tests.mutants.catalogue.look_alikes import LOOKS_ALIKE
from tests.mutants.catalogue.mysql_waiting import MYSQL_WAITING
from tests.mutants.catalogue.once import ONCE
from tests.mutants.catalogue.outcomes import OUTCOMES
from tests.mutants.catalogue.packets import PACKETS
from tests.mutants.catalogue.places import PLACES
from tests.mutants.catalogue.presets import PRESET
from tests.mutants.catalogue.quorum import QUORUM
from tests.mutants.catalogue.rates import RATES
from tests.mutants.catalogue.releases import RELEASES
from tests.mutants.catalogue.retiring import RETIRING
from tests.mutants.catalogue.secrets import SECRETS
from tests.mutants.catalogue.semaphore import SEMAPHORE
from tests.mutants.catalogue.service import SERVICE
from tests.mutants.catalogue.service_events import SERVICE_EVENTS
from tests.mutants.catalogue.shared import SHARED
from tests.mutants.catalogue.testing import TESTING
from tests.mutants.catalogue.user_locks import USER_LOCKS
from tests.mutants.catalogue.waiters import WAITERS
from tests.mutants.catalogue.waiting import WAITING

CATALOGUE = (
    *EXCLUSION,
    *RELEASES,
    *EXPIRY,
    *OUTCOMES,
    *CONNECTIONS,
    *PACKETS,
    *COST,
    *COUNTERS,
    *KEEPER,
    *ASYNCHRONOUS,
    *WAITING,
    *MYSQL_WAITING,
    *USER_LOCKS,
    *HAND_OFF,
    *CRASHES,
    *DRIVERS,
    *WAITERS,
    *CLUSTERS,
    *CONTRIB,
    *JOBS,
    *SECRETS,
    *SERVICE_EVENTS,
    *TESTING,
    *LOOKS_ALIKE,
    *PRESET,
    *RETIRING,
    *FENCING,
    *FUNCTIONS,
    *PLACES,
    *HANDOVER,
    *BY_TOKEN,
    *ONCE,
    *ELECTIONS,
    *SERVICE,
    *SEMAPHORE,
    *RATES,
    *SHARED,
    *QUORUM,
)
