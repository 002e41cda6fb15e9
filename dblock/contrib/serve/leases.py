"""Leases over HTTP: take, renew, release, look."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ...arguments import FENCE_MAX, NAME_MAX
from ...errors import NotAcquired, StaleFence
from .bodies import (
    RequestBody,
    lock_token,
    owner_field,
    preferred_wait,
    query,
    shared_field,
    slots_field,
    text,
    token_field,
    ttl_field,
    value_field,
)
from .disconnect import while_waiting
from .objects import described
from .openapi import HOLD, LEASE, LEASES, answer, header, operation, parameter
from .problems import Problem, held, invalid
from .routing import NAME, Route
from .service import Service

if TYPE_CHECKING:
    from ...aio import AsyncDetachedLease, AsyncDetachedSemaphore, AsyncLocks
    from ...handles.detached import DetachedHold

PATH = f"/v1/leases/{NAME}"
#: How many names a list has at most, unless the client asks for fewer or more.
LISTED, LISTED_MAX = 1000, 10_000


class Leases:
    """The requests for leases. Each is one call of dblock, and nothing stays here."""

    def __init__(self, service: Service) -> None:
        self._service = service
        limits = service.limits
        token, ttl, shared = token_field(), ttl_field(limits), shared_field()
        self.put_body = RequestBody(
            limits,
            either=("slots", "shared"),
            token=token,
            ttl=ttl,
            owner=owner_field(),
            slots=slots_field(),
            shared=shared,
        )
        self.patch_body = RequestBody(limits, token=token, ttl=ttl, shared=shared)
        self.proclaim_body = RequestBody(limits, token=token, value=value_field())

    async def put(self, request: Request) -> Response:
        """Take the lease, or renew it for the token that has it."""
        service, name = self._service, request.path_params["name"]
        caller = service.rights.check(request, "hold", name)
        query(request)
        wait = preferred_wait(request, service.limits)
        given = await self.put_body.read(request)
        token, owner = given["token"], given.get("owner", caller.name)
        lease: AsyncDetachedLease | AsyncDetachedSemaphore
        if "slots" in given:
            lease = _semaphore(service.locks, name, given["slots"], token, owner)
        else:
            lease = service.locks.detached(name, token, owner=owner, shared="shared" in given)
        taking = lease.take(ttl=given["ttl"], wait=float(wait or 0))
        applied = [] if wait is None else [("Preference-Applied", f"wait={wait}")]
        try:
            hold = await (while_waiting(request, service.closing, taking) if wait else taking)
        except NotAcquired as error:
            raise held(error, *applied) from None
        made = _hold(hold, 200 if hold.repeated else 201, slot="slots" in given)
        if applied:
            made.headers.update(dict(applied))
        return made

    async def patch(self, request: Request) -> Response:
        """Renew the lease."""
        service, name = self._service, request.path_params["name"]
        service.rights.check(request, "hold", name)
        query(request)
        given = await self.patch_body.read(request)
        lease = service.locks.detached(name, given["token"], shared="shared" in given)
        return _hold(await lease.renew(ttl=given["ttl"]), 200)

    async def delete(self, request: Request) -> Response:
        """Release the lease, or by force another's."""
        service, name = self._service, request.path_params["name"]
        given = query(request, "force", "fence", "shared")
        fence = _fence(given.pop("fence", None))
        if any(value != "true" for value in given.values()):
            raise invalid("The parameters force and shared are true, or are left out.")
        if "force" not in given:
            if fence is not None:
                raise invalid("The parameter fence is for a release by force.")
            service.rights.check(request, "hold", name)
            token, shared = lock_token(request), "shared" in given
            await service.locks.detached(name, token, shared=shared).release()
        else:
            service.rights.check(request, "admin", name)
            if "shared" in given:
                raise invalid("Force frees the name with all its shares: leave out shared.")
            if "lock-token" in request.headers:
                raise invalid("Give either the header Lock-Token or the parameter force.")
            try:
                released = await service.locks.release(name, force=True, fence=fence)
            except StaleFence as newer:
                detail = f"Another hold has the name by now. Its fence is {newer.newest}."
                raise Problem("other-fence", detail, fence=newer.newest) from None
            if not released:
                raise Problem("not-found", "No process holds the name.")
        return Response(status_code=204)

    async def proclaim(self, request: Request) -> Response:
        """Publish a value with the lease."""
        service, name = self._service, request.path_params["name"]
        service.rights.check(request, "hold", name)
        query(request)
        given = await self.proclaim_body.read(request)
        try:
            await service.locks.detached(name, given["token"]).proclaim(given["value"])
        except ValueError as error:
            raise invalid(f"{error}.") from None
        return Response(status_code=204)

    async def show(self, request: Request) -> Response:
        """Show a name."""
        service, name = self._service, request.path_params["name"]
        service.rights.check(request, "read", name)
        query(request)
        return _json(described(await service.locks.show(name)))

    async def list(self, request: Request) -> Response:
        """List the names that are held or waited for, as far as the caller may read them."""
        caller = self._service.rights.caller(request)
        given = query(request, "prefix", "after", "limit")
        prefix, after = given.get("prefix", ""), given.get("after", "")
        limit = _limit(given.get("limit"))

        async def listed(locks: AsyncLocks) -> Response:
            states = [
                state
                for state in await locks.list()
                if state.name.startswith(prefix)
                and state.name > after
                and caller.may("read", state.name)
            ]
            shown = [described(state) for state in states[:limit]]
            return _json({"leases": shown, "truncated": len(states) > limit})

        return await self._service.reader.read(listed)


def _limit(given: str | None) -> int:
    if given is None:
        return LISTED
    if not re.fullmatch("[0-9]{1,5}", given) or not 1 <= int(given) <= LISTED_MAX:
        raise invalid(f"The parameter limit is a whole number from 1 to {LISTED_MAX}.")
    return int(given)


def _fence(given: str | None) -> int | None:
    if given is None:
        return None
    if not re.fullmatch("[0-9]{1,19}", given) or not 1 <= int(given) <= FENCE_MAX:
        raise invalid(f"The parameter fence is a whole number from 1 to {FENCE_MAX}.")
    return int(given)


def _semaphore(
    locks: AsyncLocks, name: str, slots: int, token: str, owner: str | None
) -> AsyncDetachedSemaphore:
    try:
        return locks.detached_semaphore(name, slots, token, owner=owner)
    except ValueError as error:  # a name that leaves no room for the slots' numbers
        raise invalid(f"{str(error)[:200]}.") from None


def _hold(hold: DetachedHold, status: int, *, slot: bool = False) -> Response:
    """Return the answer to the holder. For a slot it has the name that the holder renews and
    releases."""
    seconds = max(0.0, math.floor(hold.expires_in * 1000) / 1000)
    name = b',"name":' + json.dumps(hold.name).encode() if slot else b""
    body = b'{"fence":%d,"expires_in":%.3f%b}' % (hold.fence, seconds, name)
    return Response(body, status, _HEADERS, "application/json")


def _json(value: Any) -> Response:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(body, 200, _HEADERS, "application/json")


_HEADERS = {"Cache-Control": "no-store"}
_HELD = ("invalid", "unauthorized", "forbidden", "unavailable", "internal")
_NAMED = parameter("name", "path", text(NAME_MAX))


def routes(service: Service) -> list[Route]:
    """Return the routes of leases."""
    leases = Leases(service)
    wait = parameter("Prefer", "header", {"type": "string", "examples": ["wait=10"]})
    token = parameter("Lock-Token", "header", token_field().schema)
    force = parameter("force", "query", {"type": "string", "enum": ["true"]})
    fence = parameter("fence", "query", {"type": "integer", "minimum": 1, "maximum": FENCE_MAX})
    shared = parameter("shared", "query", {"type": "string", "enum": ["true"]})
    prefix = parameter("prefix", "query", {"type": "string"})
    after = parameter("after", "query", {"type": "string"})
    limit = parameter(
        "limit",
        "query",
        {"type": "integer", "minimum": 1, "maximum": LISTED_MAX, "default": LISTED},
    )
    applied = header("Preference-Applied", "The longest wait that the service has allowed.")
    return [
        Route(
            "PUT",
            PATH,
            leases.put,
            operation(
                "Take a lease. The token that has it already renews it.",
                parameters=[_NAMED, wait],
                body=leases.put_body.schema,
                answers={
                    201: answer("The token has the lease now.", HOLD, applied),
                    200: answer("The token had the lease already, and has renewed it.", HOLD),
                },
                problems=(*_HELD, "held", "other-slots", "too-large", "outcome-unknown"),
            ),
        ),
        Route(
            "PATCH",
            PATH,
            leases.patch,
            operation(
                "Renew a lease.",
                parameters=[_NAMED],
                body=leases.patch_body.schema,
                answers={200: answer("The token has the lease for a new TTL.", HOLD)},
                problems=(*_HELD, "lost", "too-large", "outcome-unknown"),
            ),
        ),
        Route(
            "POST",
            f"{PATH}/proclaim",
            leases.proclaim,
            operation(
                "Publish a value with a lease, as a leader does.",
                parameters=[_NAMED],
                body=leases.proclaim_body.schema,
                answers={204: answer("Observers see the value until the lease is over.")},
                problems=(*_HELD, "lost", "too-large", "outcome-unknown"),
            ),
        ),
        Route(
            "DELETE",
            PATH,
            leases.delete,
            operation(
                "Release a lease: with its token, or another's by force. With a fence, only the "
                "hold that has it is released by force.",
                parameters=[_NAMED, token, force, fence, shared],
                answers={204: answer("The token does not hold the name any more.")},
                problems=(*_HELD, "lost", "not-found", "other-fence", "outcome-unknown"),
            ),
        ),
        Route(
            "GET",
            PATH,
            leases.show,
            operation(
                "Show who holds a name, and who waits for it.",
                parameters=[_NAMED],
                answers={200: answer("The state of the name.", LEASE)},
                problems=_HELD,
            ),
        ),
        Route(
            "GET",
            "/v1/leases",
            leases.list,
            operation(
                "List the names that are held or waited for, and that the caller may read, sorted. "
                "If the list is truncated, ask for the names after its last name.",
                parameters=[prefix, after, limit],
                answers={200: answer("The states of the names.", LEASES)},
                problems=_HELD,
            ),
        ),
    ]
