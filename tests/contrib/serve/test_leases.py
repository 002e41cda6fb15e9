"""What the table in docs/service.md promises, on each kind of database."""

from __future__ import annotations

import pytest

from dblock import Locks, NotAcquired
from tests.contrib.serve.process import Client, Service, kind_of, new_token, path_of
from tests.support import Threads, eventually

#: 255 characters of four bytes each.
LONGEST = "🔒" * 255
NAMES = ("a/b", "/", "..", "a b+c", "100%", "%2F", "Ünïcödé ẞ", " x ", "a?b#c", "\n", "\\", LONGEST)


def test_a_lease_from_its_grant_to_its_release(client: Client, name: str) -> None:
    token = new_token()
    taken = client.put(name, token, owner="web1 pid 4711")
    assert taken.status_code == 201
    assert taken.json().keys() == {"fence", "expires_in"}
    assert 0 < taken.json()["expires_in"] < 30
    fence = taken.json()["fence"]
    shown = client.show(name).json()
    assert shown["holder"] == "web1 pid 4711"
    assert (shown["state"], shown["fence"]) == ("held", fence)
    renewed = client.patch(name, token, ttl=60)
    assert renewed.status_code == 200
    assert renewed.json()["fence"] == fence
    assert 30 < renewed.json()["expires_in"] < 60
    released = client.delete(name, token)
    assert (released.status_code, released.content) == (204, b"")
    assert client.show(name).json()["state"] == "free"


def test_a_repeat_with_the_token_is_the_same_hold_and_renews_it(client: Client, name: str) -> None:
    token = new_token()
    first = client.put(name, token, ttl=10)
    second = client.put(name, token, ttl=60)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json()["fence"] == first.json()["fence"]
    assert second.json()["expires_in"] > 10


def test_another_token_is_refused_and_learns_of_the_holder(client: Client, name: str) -> None:
    fence = client.put(name, new_token(), owner="the holder").json()["fence"]
    refused = client.put(name, new_token())
    assert refused.status_code == 409
    assert kind_of(refused) == "held"
    problem = refused.json()
    assert (problem["holder"], problem["fence"]) == ("the holder", fence)
    assert 0 < problem["frees_in"] <= 30
    assert problem["frees_in"] <= int(refused.headers["Retry-After"]) <= 30


def test_the_next_hold_has_a_larger_fence(client: Client, name: str) -> None:
    token = new_token()
    first = client.put(name, token).json()["fence"]
    client.delete(name, token)
    assert client.put(name, new_token()).json()["fence"] > first


def test_what_the_token_does_not_hold_is_lost(client: Client, name: str) -> None:
    token, other = new_token(), new_token()
    client.put(name, token)
    for answer in (client.patch(name, other), client.delete(name, other)):
        assert answer.status_code == 410
        assert kind_of(answer) == "lost"
        assert answer.json()["reason"]
    assert client.show(name).json()["state"] == "held"


def test_a_release_can_be_repeated(client: Client, name: str) -> None:
    token = new_token()
    client.put(name, token)
    assert client.delete(name, token).status_code == 204
    again = client.delete(name, token)
    assert (again.status_code, kind_of(again)) == (410, "lost")
    assert again.json()["reason"] == "released"


def test_an_expired_lease_is_another_clients(client: Client, name: str) -> None:
    token = new_token()
    first = client.put(name, token, ttl=0.2).json()["fence"]
    second = client.put(name, new_token(), wait=60)
    assert second.status_code == 201
    assert second.json()["fence"] > first
    assert kind_of(client.patch(name, token)) == "lost"


def test_a_waiter_gets_the_name_at_the_release(
    service: Service, client: Client, name: str, threads: Threads
) -> None:
    token = new_token()
    client.put(name, token)
    waiting = threads.start(service.client().put, name, new_token(), wait=60, owner="the waiter")
    eventually(lambda: bool(client.show(name).json()["waiters"]))
    client.delete(name, token)
    taken = waiting.result(60)
    assert taken.status_code == 201
    assert taken.headers["Preference-Applied"] == "wait=60"
    assert client.show(name).json()["holder"] == "the waiter"
    assert taken.json()["expires_in"] > 0


def test_a_wait_ends_with_its_time(client: Client, name: str) -> None:
    client.put(name, new_token())
    refused = client.put(name, new_token(), wait=1)
    assert (refused.status_code, kind_of(refused)) == (409, "held")
    assert refused.headers["Preference-Applied"] == "wait=1"
    assert client.show(name).json()["waiters"] == []


def test_a_wait_has_a_limit_and_the_answer_says_so(client: Client, name: str) -> None:
    taken = client.put(name, new_token(), wait=3600)
    assert taken.headers["Preference-Applied"] == "wait=60"


def test_python_and_http_exclude_each_other(client: Client, locks: Locks, name: str) -> None:
    token = new_token()
    with locks.lease(name, ttl=30) as lease:
        assert client.put(name, token).status_code == 409
        fence = lease.fence
    taken = client.put(name, token, owner="over HTTP").json()
    assert taken["fence"] > fence
    with pytest.raises(NotAcquired, match="over HTTP"), locks.lease(name, wait=0):
        pass
    client.delete(name, token)
    with locks.lease(name, wait=0) as lease:
        assert lease.fence > taken["fence"]


def test_a_python_waiter_is_served_by_a_release_over_http(
    client: Client, locks: Locks, name: str, threads: Threads
) -> None:
    token = new_token()
    client.put(name, token)
    lease = locks.lease(name, wait=60)
    waiting = threads.start(lease.acquire)
    eventually(lambda: bool(client.show(name).json()["waiters"]))
    client.delete(name, token)
    assert waiting.result(60)
    threads.run(lease.release)


def test_by_force_the_name_is_free(client: Client, name: str) -> None:
    token = new_token()
    client.put(name, token)
    assert client.force(name).status_code == 204
    assert client.show(name).json()["state"] == "free"
    assert kind_of(client.patch(name, token)) == "lost"
    again = client.force(name)
    assert (again.status_code, kind_of(again)) == (404, "not-found")


def test_by_force_only_the_hold_that_the_operator_has_seen(client: Client, name: str) -> None:
    first, second = new_token(), new_token()
    seen = client.put(name, first).json()["fence"]
    client.delete(name, first)
    newer = client.put(name, second).json()["fence"]
    refused = client.force(name, seen)
    assert (refused.status_code, kind_of(refused)) == (412, "other-fence")
    assert refused.json()["fence"] == newer
    assert client.patch(name, second).status_code == 200
    assert client.force(name, newer).status_code == 204
    assert client.force(name, newer).status_code == 404


def test_the_list_has_the_names_with_a_prefix(client: Client, name: str) -> None:
    for number in range(3):
        client.put(f"{name}/{number}", new_token())
    found = client.list(prefix=f"{name}/").json()
    assert [one["name"] for one in found["leases"]] == [f"{name}/{n}" for n in range(3)]
    assert found["truncated"] is False
    assert f"{name}/1" in {one["name"] for one in client.list().json()["leases"]}
    fewer = client.list(prefix=f"{name}/", limit="2").json()
    assert (len(fewer["leases"]), fewer["truncated"]) == (2, True)
    rest = client.list(prefix=f"{name}/", limit="2", after=fewer["leases"][-1]["name"]).json()
    assert [one["name"] for one in rest["leases"]] == [f"{name}/2"]
    assert rest["truncated"] is False


@pytest.mark.parametrize("unusual", NAMES, ids=lambda name: repr(name)[:12])
def test_names_are_exact(client: Client, unusual: str) -> None:
    token = new_token()
    assert client.put(unusual, token).status_code == 201
    assert client.show(unusual).json()["name"] == unusual
    assert unusual in {one["name"] for one in client.list().json()["leases"]}
    assert client.delete(unusual, token).status_code == 204


def test_two_names_that_differ_in_a_slash_are_two(client: Client, name: str) -> None:
    assert client.put(f"{name}/x", new_token()).status_code == 201
    assert client.put(f"{name}%2Fx", new_token()).status_code == 201
    target = path_of(f"{name}/x").replace("%2F", "/")
    refused = client.send("PUT", target, json={"token": new_token(), "ttl": 30})
    assert kind_of(refused) == "invalid"
    assert "%2F" in refused.json()["detail"]


@pytest.mark.parametrize("service", ["postgresql"], indirect=True)
def test_a_row_lock_is_shown_without_its_statement(client: Client, locks: Locks, name: str) -> None:
    with locks.row(name):
        shown = client.show(name).json()
    assert shown["state"] == "locked"
    assert shown["row_lock"].keys() == {"holder", "since"}


def test_nothing_shows_a_token(client: Client, service: Service, name: str) -> None:
    token = new_token()
    answers = [
        client.put(name, token),
        client.put(name, new_token()),
        client.patch(name, token),
        client.show(name),
        client.list(),
        client.delete(name, token),
        client.delete(name, token),
    ]
    assert all(token not in answer.text + str(answer.headers) for answer in answers)
    eventually(lambda: sum(name in line for line in service.logged) >= 6)
    assert token not in "".join(service.logged + service.said)


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_probes(client: Client) -> None:
    assert client.http.get("/healthz").text == "ok\n"
    assert client.http.get("/readyz").text == "ok\n"
    assert client.http.head("/readyz").status_code == 200
