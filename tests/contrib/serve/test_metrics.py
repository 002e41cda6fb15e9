"""`GET /metrics`: the metrics of `dblock metrics`, for callers that may read all names."""

from __future__ import annotations

from pathlib import Path

from dblock import Locks
from tests.cli.test_metrics import read
from tests.conftest import NewDatabase
from tests.contrib.serve.running import Running, token
from tests.support import LONG


def test_metrics(new_database: NewDatabase) -> None:
    url = new_database("sqlite", migrated=True).url
    with (
        Running(url) as service,
        service.client() as client,
        Locks(url) as locks,
        locks.lease("report", ttl=LONG),
    ):
        client.get("/v1/leases/report")
        client.get("/v1/leases/other")
        client.get("/not/there")
        answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = read(answer.text)
    assert found["dblock_locks", (("state", "held"),)] == 1
    assert found["dblock_lock_state", (("name", "report"), ("state", "held"))] == 1
    shown = (("method", "GET"), ("path", "/v1/leases/{name}"), ("status", "200"))
    assert found["dblock_http_requests_total", shown] == 2
    assert found["dblock_http_request_seconds_total", shown] > 0
    lost = (("method", "none"), ("path", "none"), ("status", "404"))
    assert found["dblock_http_requests_total", lost] == 1
    assert "/not/there" not in answer.text


def test_metrics_need_the_right_to_read_all_names(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    url, file = new_database("sqlite", migrated=True).url, tmp_path / "tokens.toml"
    given = {
        None: 401,
        token(file, "own", ["own/"], ["read", "hold", "admin"]): 403,
        token(file, "holder", [""], ["hold"]): 403,
        token(file, "prometheus", [""], ["read"]): 200,
    }
    with Running(url, file) as service:
        for bearer, status in given.items():
            with service.client(bearer) as client:
                answer = client.get("/metrics")
                assert answer.status_code == status
                assert status != 403 or "all names" in answer.json()["detail"]
