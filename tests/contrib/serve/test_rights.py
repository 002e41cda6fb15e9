"""Bearer tokens: which caller may do what with which names."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from starlette.requests import Request

from dblock.contrib.serve.problems import Problem
from dblock.contrib.serve.rights import Everyone
from dblock.contrib.serve.tokens_file import TokensFile, add, caller
from tests.conftest import NewDatabase
from tests.contrib.serve.conftest import Serve
from tests.contrib.serve.process import Client, Service, kind_of, new_token


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


def asked_by(bearer: str, *more: tuple[bytes, bytes]) -> Request:
    headers = [(b"authorization", bearer.encode()), *more]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers})


class Served:
    """A service with a file of tokens."""

    def __init__(self, service: Service, file: Path) -> None:
        self.service = service
        self.file = file

    def client(self, name: str, *prefixes: str, rights: str = "read hold") -> Client:
        """A client with a new token."""
        return self.service.client(add(str(self.file), caller(name, prefixes, rights.split())))


@pytest.fixture
def served(serve: Serve, new_database: NewDatabase, file: Path) -> Served:
    add(str(file), caller("first", ("",), ("read",)))
    database = new_database("sqlite", migrated=True)
    return Served(serve(database.url, "--tokens", str(file)), file)


def test_without_a_token_there_is_no_answer_but_to_probes(served: Served) -> None:
    client = served.service.client()
    for answer in (
        client.put("a", new_token()),
        client.patch("a", new_token()),
        client.delete("a", new_token()),
        client.force("a"),
        client.show("a"),
        client.list(),
    ):
        assert (answer.status_code, kind_of(answer)) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert client.http.get("/healthz").status_code == 200
    assert client.http.get("/readyz").status_code == 200
    assert client.http.get("/openapi.json").status_code == 200


@pytest.mark.parametrize("bearer", ["dblock_wrong", "\xff", "x" * 4000])
def test_a_wrong_token_has_no_rights(served: Served, bearer: str) -> None:
    client = served.service.client()
    headers = {b"Authorization": f"Bearer {bearer}".encode("latin-1")}
    assert client.http.get("/v1/leases", headers=headers).status_code == 401


def test_a_caller_has_its_prefixes_only(served: Served) -> None:
    billing = served.client("billing", "billing/", "report")
    other = served.client("other", "other/")
    token = new_token()
    assert billing.put("billing/a", token).status_code == 201
    assert billing.put("report-1", token).status_code == 201
    assert billing.put("billing", token).status_code == 403
    for answer in (
        other.put("billing/a", token),
        other.patch("billing/a", token),
        other.delete("billing/a", token),
        other.force("billing/a"),
        other.show("billing/a"),
    ):
        assert (answer.status_code, kind_of(answer)) == (403, "forbidden")
    assert billing.show("billing/a").json()["state"] == "held"


def test_a_list_has_only_what_its_caller_may_read(served: Served) -> None:
    billing = served.client("billing", "billing/")
    other = served.client("other", "other/")
    billing.put("billing/a", new_token())
    other.put("other/a", new_token())
    assert [one["name"] for one in billing.list().json()["leases"]] == ["billing/a"]
    assert [one["name"] for one in other.list().json()["leases"]] == ["other/a"]
    assert other.list(prefix="billing/").json()["leases"] == []
    holder = served.client("holder", "", rights="hold")
    assert holder.list().json()["leases"] == []


def test_each_right_is_for_its_requests(served: Served) -> None:
    token = new_token()
    reader = served.client("reader", "", rights="read")
    holder = served.client("holder", "", rights="hold")
    admin = served.client("admin", "", rights="admin")
    for client in (reader, admin):
        assert client.put("a", token).status_code == 403
        assert client.delete("a", token).status_code == 403
    assert holder.put("a", token).status_code == 201
    assert holder.show("a").status_code == 403
    assert holder.force("a").status_code == 403
    assert reader.force("a").status_code == 403
    assert reader.show("a").status_code == 200
    assert admin.force("a").status_code == 204


def test_the_caller_is_the_owner_unless_it_says_more(served: Served) -> None:
    billing = served.client("billing", "")
    billing.put("a", new_token())
    assert billing.show("a").json()["holder"] == "billing"
    billing.put("b", new_token(), owner="web1")
    assert billing.show("b").json()["holder"] == "web1"


def test_a_change_of_the_file_counts_without_a_restart(served: Served) -> None:
    client = served.client("late", "")
    assert client.list().status_code == 200
    entries = served.file.read_text().split("\n[[token]]")
    kept = [entry for entry in entries if '"late"' not in entry]
    served.file.write_text("\n[[token]]".join(kept))
    assert client.list().status_code == 401


def test_a_change_that_is_wrong_changes_nothing_and_is_logged(served: Served) -> None:
    client = served.client("early", "")
    assert client.list().status_code == 200
    served.file.write_text(served.file.read_text() + "\n[[token]]\nnam")
    assert client.list().status_code == 200
    assert client.list().status_code == 200
    served.file.unlink()
    assert client.list().status_code == 200
    served.service.stop()
    said = [line for line in served.service.ended() if "last state counts" in line]
    assert len(said) == 2


def test_bearer_tokens_are_not_logged(served: Served) -> None:
    bearer = add(str(served.file), caller("billing", ("",), ("read",)))
    served.service.client(bearer).list()
    served.service.client(bearer).http.get("/v1/leases", params={"token": bearer})
    served.service.client(bearer[:-1]).list()
    served.service.stop()
    said = "".join(served.service.ended() + served.service.logged)
    assert '"caller":"billing"' in said
    assert bearer[:-1] not in said


def test_the_file_has_no_token(file: Path) -> None:
    bearer = add(str(file), caller("a", ("x/", 'y"\x7f'), ("hold", "read")))
    assert bearer not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = TokensFile(file).caller(asked_by(f"Bearer {bearer}"))
    assert found == caller("a", ("x/", 'y"\x7f'), ("read", "hold"))


def test_the_word_bearer_may_be_in_any_case(file: Path) -> None:
    bearer = add(str(file), caller("a", ("",), ("read",)))
    assert TokensFile(file).caller(asked_by(f"bearer {bearer}")).name == "a"
    with pytest.raises(Problem):
        TokensFile(file).caller(asked_by(f"Basic {bearer}"))


def test_two_headers_are_none(file: Path) -> None:
    bearer = add(str(file), caller("a", ("",), ("read",)))
    twice = asked_by(f"Bearer {bearer}", (b"authorization", f"Bearer {bearer}".encode()))
    with pytest.raises(Problem):
        TokensFile(file).caller(twice)


DIGEST = f'sha256 = "{"0" * 64}"'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[token", "Expected"),
        ("x = 1", "nothing else"),
        ("token = 1", "nothing else"),
        ("[[token]]\nname = 'a'", "has the fields"),
        (f"[[token]]\nname='a'\n{DIGEST}\nnames=['']\nrights=['read']\nmore=1", "has the fields"),
        ("[[token]]\nname='a'\nsha256='x'\nnames=['']\nrights=['read']", "64 hexadecimal"),
        (f"[[token]]\nname=''\n{DIGEST}\nnames=['']\nrights=['read']", "printable"),
        (f"[[token]]\nname='a'\n{DIGEST}\nnames=''\nrights=['read']", "list of texts"),
        (f"[[token]]\nname='a'\n{DIGEST}\nnames=[]\nrights=['read']", "at least one"),
        (f"[[token]]\nname='a'\n{DIGEST}\nnames=['']\nrights=['write']", "read, hold, admin"),
        (f"[[token]]\nname='a'\n{DIGEST}\nnames=['']\nrights=['read','read']", "at most once"),
        (f"[[token]]\nname='a'\n{DIGEST}\nnames=['']\nrights=['read']\n" * 2, "of another"),
    ],
)
def test_a_wrong_file_is_refused(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match=said):
        TokensFile(file)


def test_a_file_that_others_can_change_is_refused(file: Path) -> None:
    add(str(file), caller("a", ("",), ("read",)))
    file.chmod(0o620)
    with pytest.raises(ValueError, match="others can change it"):
        TokensFile(file)
    if os.geteuid() == 0:
        file.chmod(0o600)
        os.chown(file, 4711, 4711)
        with pytest.raises(ValueError, match="belongs to the user 4711"):
            TokensFile(file)


def test_a_name_is_given_once(file: Path) -> None:
    add(str(file), caller("a", ("",), ("read",)))
    with pytest.raises(ValueError, match="choose another"):
        add(str(file), caller("a", ("",), ("read",)))


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("127.0.0.1:8700", True),
        ("[::1]:8700", True),
        ("rebound.example", False),
        ("127.0.0.1.rebound.example", False),
    ],
)
def test_a_page_in_a_browser_here_cannot_use_it_by_a_name_of_its_own(
    host: str, allowed: bool
) -> None:
    request = Request({"type": "http", "headers": [(b"host", host.encode())]})
    if allowed:
        assert Everyone(local=True).caller(request).may("admin", "a")
    else:
        with pytest.raises(Problem):
            Everyone(local=True).caller(request)
