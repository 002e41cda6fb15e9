"""The Idempotency-Key header, for all frameworks. No I/O.

It follows the IETF draft "The Idempotency-Key HTTP Header Field" and RFC 9457, "Problem Details for
HTTP APIs".
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import responses
from types import SimpleNamespace
from typing import Any, Generic, Self, TypeVar

from ..arguments import Seconds, check_flag, check_json, check_keep, check_wait
from ..decorating import check_callback
from ..errors import DBLockError, InProgress, KeyReused, Unsupported

Request = TypeVar("Request")
Response = TypeVar("Response")

HEADER = "Idempotency-Key"
#: The header that marks a repeated answer.
REPLAYED = "Idempotent-Replayed"
KEY_MAX = 255
BODY_MAX = 64 * 1024
#: An answer with one of these wants the same request again, so it is not the end of a call.
TRY_AGAIN = frozenset({401, 408, 425, 429})
#: Headers of one connection, one moment or one session. They are set again each time.
OF_ONE_ANSWER = frozenset(
    {
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "server",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# A string of RFC 9651, with parameters that mean nothing here; or a word without quotes.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"[ \t]*(?:;.*)?')
_BARE = re.compile(r"[A-Za-z0-9!#$%&'*+./:=^_`|~@-]+")


@dataclass(frozen=True)
class Answer:
    """A response, as all frameworks have it."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    #: The reason phrase beside the status, if the application has set its own.
    reason: str | None = None

    @classmethod
    def problem(
        cls,
        status: int,
        detail: str,
        *headers: tuple[str, str],
        type: str = "about:blank",
        title: str | None = None,
        **members: object,
    ) -> Answer:
        """Return problem details, with further ``members`` for programs."""
        title = title or HTTPStatus(status).phrase
        document = {"type": type, "title": title, "status": status, "detail": detail, **members}
        kind = ("Content-Type", "application/problem+json")
        return cls(status, (kind, *headers), json.dumps(document).encode())

    @classmethod
    def replayed(cls, recorded: dict[str, Any]) -> Answer:
        """Return an answer that is on record."""
        body = recorded.get("text")
        return cls(
            recorded["status"],
            (*((name, value) for name, value in recorded["headers"]), (REPLAYED, "true")),
            base64.b64decode(recorded["base64"]) if body is None else body.encode(),
            recorded.get("reason"),
        )

    def recorded(self) -> dict[str, Any]:
        """Return what JSON says of the answer. Raises ValueError if it is too large."""
        if len(self.body) > BODY_MAX:
            raise too_large(len(self.body))
        headers = [
            [name, value] for name, value in self.headers if name.lower() not in OF_ONE_ANSWER
        ]
        made: dict[str, Any] = {"status": self.status, "headers": headers}
        if self.reason is not None:
            made["reason"] = self.reason
        try:
            return {**made, "text": self.body.decode()}
        except UnicodeDecodeError:
            return {**made, "base64": base64.b64encode(self.body).decode()}


def reason_of(status: int, said: str) -> str | None:
    """Return the reason phrase of a status; None for the standard one."""
    return None if said.lower() == responses.get(status, "").lower() else said


def too_large(length: int) -> ValueError:
    """Return the error for a body that is not recorded."""
    return ValueError(
        f"an idempotent view answered with {length} bytes, and at most {BODY_MAX} are recorded: "
        "answer with a link to what is larger"
    )


def streamed(response: object) -> TypeError:
    """Return the error for a response whose body is not there yet."""
    return TypeError(
        f"an idempotent view answered with {type(response).__name__}, whose body is sent later and "
        "cannot be recorded: answer with a body that is complete, or with a link"
    )


class Rejected(Exception):
    """The request is refused, before anything ran."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Unrecorded(Exception, Generic[Response]):
    """The transaction is to be rolled back, and this response still sent."""

    def __init__(self, response: Response) -> None:
        super().__init__(response)
        self.response = response


@dataclass(frozen=True)
class Call:
    """One request, as it is recorded. Without a key it is not."""

    key: str | None
    options: dict[str, Any] = field(default_factory=dict)

    def once(self, make: Callable[..., Any]) -> Any:
        """Return the :meth:`Locks.once` for the key; without a key, a substitute."""
        if self.key is None:
            return nullcontext(SimpleNamespace(replayed=False, result=None, active=True))
        return make(self.key, **self.options)

    def refusal(self, error: DBLockError) -> Answer | None:
        """Return the answer for a client that has to wait, or that uses a key again for another
        request; None for an error about another call, in the view itself."""
        if self.key is None or error.name != self.key:
            return None
        if isinstance(error, InProgress):
            said = "A request with this Idempotency-Key is in progress. Repeat yours later."
            return Answer.problem(409, said, ("Retry-After", "1"))
        said = "This Idempotency-Key was used for another request. Use a new key for a new request."
        return Answer.problem(422, said)


class Rules(Generic[Request]):
    """A decorator's arguments: which requests need a key, and what a call is."""

    def __init__(
        self,
        caller: Callable[[Request], object],
        *,
        fingerprint: Callable[[Request], object] | None = None,
        methods: Iterable[str] = ("POST", "PATCH"),
        required: bool = True,
        keep: Seconds = 24 * 3600.0,
        wait: Seconds | None = 0.0,
    ) -> None:
        if caller is None:
            raise TypeError("caller is a function that gets the request: two callers share no keys")
        self._caller = check_callback("caller", caller)
        self.fingerprint = check_callback("fingerprint", fingerprint)
        if isinstance(methods, str):
            raise TypeError(f'methods is a collection, such as ["{methods}"], not a str')
        self._methods = frozenset(method.upper() for method in methods)
        self._required = check_flag("required", required)
        self._options = {"keep": check_keep(keep), "wait": check_wait(wait)}

    def cover(self, method: str | None) -> bool:
        """Whether requests with a method run once. All others run as usual."""
        return method in self._methods

    def call(
        self, request: Request, method: str | None, path: str, query: str, header: str | None
    ) -> Callable[[object], Call]:
        """Return what makes a call of the body, or of a fingerprint instead. Raises Rejected."""
        key = None if header is None else read_key(header)
        if key is None and self._required:
            raise Rejected(Answer.problem(400, f"This request needs the header {HEADER}."))
        if key is None:
            return lambda payload: Call(None)
        caller = self._caller(request)
        what = [method, path, caller, key]
        recorded = f"http {hashlib.sha256(_text('a caller', what)).hexdigest()}"
        said = [method, path, query]

        def made(payload: object) -> Call:
            given = payload if isinstance(payload, bytes) else _text("a fingerprint", payload)
            fingerprint = _text("a path", said) + b"\n" + given
            return Call(recorded, {"fingerprint": fingerprint, **self._options})

        return made

    def record(self, status: int, active: bool) -> bool:
        """Whether an answer is the end of a call, and is recorded. Else the view's changes are
        rolled back, and the answer is still sent.

        ``active`` means that the view has left its transaction open for the record. Raises
        Unsupported if it has not, and its answer is a success.
        """
        if active or status >= 400:
            return active and status < 500 and status not in TRY_AGAIN
        raise Unsupported(
            f"an idempotent view answered with {status}, but its transaction has failed, or the "
            "view has rolled it back, so what it did is undone: answer with a status of 400 or "
            "above then, or put what may fail into a savepoint"
        )


class Answering(Generic[Request, Response]):
    """One request, from its key to its response; the same for all frameworks, sync or asyncio.

    The framework makes the call and begins the transaction inside the ``with`` block, and returns
    the response. If the block ends with an error that is an answer, :attr:`response` has it::

        with Answering(rules, respond) as answering:
            call = rules.call(...)(payload)
            with transaction, answering.once(call, make) as recorded:
                if recorded.replayed:
                    return replay(recorded.result)
                response = view(request)
                answering.record(recorded, response, status, active, said)
                return response
        return answering.response
    """

    response: Response

    def __init__(self, rules: Rules[Request], respond: Callable[[Answer], Response]) -> None:
        self._rules = rules
        self._respond = respond
        self._call: Call | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, Unrecorded):
            self.response = error.response
            return True
        refusal: Answer | None = None
        if isinstance(error, Rejected):
            refusal = error.answer
        elif isinstance(error, InProgress | KeyReused) and self._call is not None:
            refusal = self._call.refusal(error)
        if refusal is None:
            return False
        self.response = self._respond(refusal)
        return True

    def once(self, call: Call, make: Callable[..., Any]) -> Any:
        """Return the :meth:`Locks.once` of a call, as :meth:`Call.once` does."""
        self._call = call
        return call.once(make)

    def record(
        self,
        recorded: Any,
        response: Response,
        status: int,
        active: bool,
        said: Callable[[], dict[str, Any]],
    ) -> None:
        """Record what a response ``said``. Raises Unrecorded, which rolls the transaction back, if
        it is not the end of the call."""
        if not self._rules.record(status, active):
            raise Unrecorded(response)
        recorded.result = said()


def read_key(header: str) -> str:
    """Return the key that a header has. Raises Rejected."""
    said = header.strip(" \t")
    quoted = _QUOTED.fullmatch(said)
    if quoted is not None:
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    elif _BARE.fullmatch(said):
        key = said
    else:
        raise _unreadable(f'{HEADER} is one string in quotes, such as "8e03978e-40d5-43dd".')
    if not key:
        raise _unreadable(f"{HEADER} is empty.")
    if len(key) > KEY_MAX:
        raise _unreadable(f"{HEADER} has at most {KEY_MAX} characters, this one has {len(key)}.")
    return key


def _unreadable(detail: str) -> Rejected:
    return Rejected(Answer.problem(400, detail))


def _text(what: str, value: object) -> bytes:
    return check_json(what, value, sort=True).encode()
