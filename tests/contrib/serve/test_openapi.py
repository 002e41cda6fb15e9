"""The description at /openapi.json, checked against the running service by schemathesis."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import Phase, settings
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    positive_data_acceptance,
    unsupported_method,
)

from tests.contrib.serve.process import Client, Service
from tests.support import examples

pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)

#: schemathesis takes the service's own statuses of refused data for those of a fault.
EXPECTED = {"held": 409, "lost": 410}


@pytest.fixture
def described(service: Service) -> Any:
    return schemathesis.openapi.from_url(f"http://{service.address}/openapi.json")


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(max_examples=examples(15), deadline=None, phases=[Phase.explicit, Phase.generate])
def test_the_service_is_as_described(case: Any, service: Service) -> None:
    case.call_and_validate()


def test_the_description_has_every_lease_request(client: Client) -> None:
    described = client.http.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    assert set(described["paths"]["/v1/leases/{name}"]) == {"put", "patch", "delete", "get"}
    put = described["paths"]["/v1/leases/{name}"]["put"]["responses"]
    assert {"200", "201", "400", "401", "403", "409", "413", "503", "504"} <= set(put)
