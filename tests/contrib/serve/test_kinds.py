"""Slots, shares and leaders over HTTP, on each kind of database."""

from __future__ import annotations

import httpx
import pytest

from dblock import Locks
from tests.contrib.serve.process import Client, Service, kind_of, new_token, path_of
from tests.support import Threads, eventually

# --- slots -------------------------------------------------------------------------------------


def test_a_slot_from_its_grant_to_its_release(client: Client, locks: Locks, name: str) -> None:
    token = new_token()
    taken = client.put(name, token, slots=2, owner="web1")
    assert taken.status_code == 201
    assert taken.json().keys() == {"fence", "expires_in", "name"}
    slot = taken.json()["name"]
    assert slot in (f"{name}#1", f"{name}#2")
    again = client.put(name, token, slots=2)
    assert (again.status_code, again.json()["name"]) == (200, slot)
    with locks.semaphore(name, 2, wait=0):
        assert kind_of(client.put(name, new_token(), slots=2)) == "held"
        assert client.show(name).json()["slots"] == {"limit": 2, "held": 2}
    assert client.show(slot).json()["holder"] == "web1"
    assert client.patch(slot, token).json()["fence"] == taken.json()["fence"]
    assert client.delete(slot, token).status_code == 204
    assert kind_of(client.delete(slot, token)) == "lost"


def test_waiting_for_a_slot(client: Client, service: Service, name: str, threads: Threads) -> None:
    first, second = new_token(), new_token()
    slot = client.put(name, first, slots=1).json()["name"]
    waiter = service.client()
    waiting = threads.start(lambda: waiter.put(name, second, wait=60, slots=1))
    eventually(lambda: client.show(slot).json()["waiters"] != [])
    client.delete(slot, first)
    answer = waiting.result()
    assert (answer.status_code, answer.json()["name"]) == (201, slot)
    assert client.put(name, second, slots=1).status_code == 200


def test_another_number_of_slots(client: Client, locks: Locks, name: str) -> None:
    client.put(name, new_token(), slots=2)
    answer = client.put(name, new_token(), slots=3)
    assert (answer.status_code, kind_of(answer)) == (422, "other-slots")
    assert answer.json()["slots"] == 2
    with locks.election(f"{name} leader").campaign() as term:
        term.proclaim(1)
        answer = client.put(f"{name} leader", new_token(), slots=3)
        assert kind_of(answer) == "other-slots"
        assert answer.json()["slots"] is None


# --- shares ------------------------------------------------------------------------------------


def unshare(client: Client, name: str, token: str) -> httpx.Response:
    target = f"{path_of(name)}?shared=true"
    return client.send("DELETE", target, headers={"Lock-Token": token})


def test_shares(client: Client, locks: Locks, name: str) -> None:
    one, two = new_token(), new_token()
    first = client.put(name, one, shared=True)
    second = client.put(name, two, shared=True)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["fence"] == second.json()["fence"]
    assert client.put(name, one, shared=True).status_code == 200
    assert client.show(name).json()["readers"] == 2
    assert kind_of(client.put(name, new_token())) == "held"
    body = {"token": one, "ttl": 60, "shared": True}
    renewed = client.send("PATCH", path_of(name), json=body)
    assert renewed.json()["expires_in"] > 30
    assert kind_of(client.patch(name, one)) == "lost"  # it has no lease of its own
    assert unshare(client, name, one).status_code == 204
    assert kind_of(unshare(client, name, one)) == "lost"
    assert not locks.lease(name).acquire(blocking=False)
    assert unshare(client, name, two).status_code == 204
    with locks.lease(name, wait=0):
        assert kind_of(client.put(name, one, shared=True)) == "held"


# --- leaders -----------------------------------------------------------------------------------


def proclaim(client: Client, name: str, token: str, value: object) -> httpx.Response:
    return client.send("POST", f"{path_of(name)}/proclaim", json={"token": token, "value": value})


def test_a_leader(client: Client, locks: Locks, name: str) -> None:
    token = new_token()
    assert kind_of(proclaim(client, name, token, 1)) == "lost"
    client.put(name, token, owner="web1")
    answer = proclaim(client, name, token, {"address": "10.0.0.7"})
    assert (answer.status_code, answer.content) == (204, b"")
    leader = locks.election(name).leader()
    assert leader is not None
    assert (leader.owner, leader.value) == ("web1", {"address": "10.0.0.7"})
    assert kind_of(proclaim(client, name, new_token(), 2)) == "lost"
    client.delete(name, token)
    assert locks.election(name).leader() is None


def test_a_semaphore_has_no_leader(client: Client, name: str) -> None:
    client.put(name, new_token(), slots=1)
    token = new_token()
    client.put(name, token)
    answer = proclaim(client, name, token, 1)
    assert kind_of(answer) == "invalid"
    assert "semaphore" in answer.json()["detail"]


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"slots": 0}, "from 1 to 1000"),
        ({"slots": 1001}, "from 1 to 1000"),
        ({"slots": True}, "from 1 to 1000"),
        ({"slots": "3"}, "from 1 to 1000"),
        ({"shared": False}, "is true, or is left out"),
        ({"shared": 1}, "is true, or is left out"),
        ({"shared": True, "slots": 3}, "either"),
    ],
)
def test_wrong_fields(client: Client, name: str, more: dict[str, object], said: str) -> None:
    answer = client.send("PUT", path_of(name), json={"token": new_token(), **more})
    assert kind_of(answer) == "invalid"
    assert said in answer.json()["detail"]


def test_a_name_without_room_for_a_slots_number(client: Client) -> None:
    answer = client.put("x" * 255, new_token(), slots=1000)
    assert kind_of(answer) == "invalid"


def test_wrong_releases(client: Client, name: str) -> None:
    token = {"Lock-Token": new_token()}
    forced = client.send("DELETE", f"{path_of(name)}?force=true&shared=true")
    assert (kind_of(forced), "shared" in forced.json()["detail"]) == ("invalid", True)
    for query in ("shared=1", "shared=true&shared=true", "force=1"):
        answer = client.send("DELETE", f"{path_of(name)}?{query}", headers=token)
        assert kind_of(answer) == "invalid"


def test_wrong_values(client: Client, name: str) -> None:
    token = new_token()
    client.put(name, token)
    for body in ({"token": token}, {"value": 1}, {"token": token, "value": 1, "ttl": 3}):
        answer = client.send("POST", f"{path_of(name)}/proclaim", json=body)
        assert kind_of(answer) == "invalid"
    assert kind_of(client.send("GET", f"{path_of(name)}/proclaim")) == "method-not-allowed"
