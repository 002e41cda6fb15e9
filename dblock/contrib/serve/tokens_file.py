"""The file with the callers' bearer tokens: as TOML, and without the tokens themselves.

::

    [[token]]
    name = "billing"
    sha256 = "9f86d081884c7d65..."      # of the token
    names = ["billing/", "report"]     # what its names begin with; "" is all names
    rights = ["read", "hold"]

A token has 256 random bits. So one round of SHA-256 is enough: there is nothing to guess.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from starlette.requests import HTTPConnection

from .problems import Problem
from .rights import RIGHTS, AuthorizedCaller, Right, Rights

logger = logging.getLogger("dblock.serve")

OTHERS_WRITE = 0o022
#: Begins each token, so that a search for leaked secrets finds it.
BEGINNING = "dblock_"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = {"name", "sha256", "names", "rights"}

Callers = dict[str, AuthorizedCaller]
Version = tuple[int, int, int]


class TokensFile(Rights):
    """The callers in a file. It is read again when it has changed.

    If a change cannot be used, the callers stay as they were, and the log says why.
    Raises ValueError if it cannot be used at first.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._callers, self._version = read(self._path)
        self._complaint = ""

    def find(self, request: HTTPConnection) -> AuthorizedCaller:
        """Return the caller that has the request's bearer token."""
        given = request.headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() == "bearer":
            digest = sha256(token.strip(" ").encode("latin-1")).hexdigest()
            # It looks the digest up, not the token: the time that takes reveals nothing about it.
            caller = self._current().get(digest)
            if caller is not None:
                return caller
        raise Problem(
            "unauthorized",
            "Send a token of this service: Authorization: Bearer TOKEN.",
            ("WWW-Authenticate", 'Bearer realm="dblock"'),
        )

    def _current(self) -> Callers:
        try:
            if _version(os.stat(self._path)) != self._version:
                self._callers, self._version = read(self._path)
                self._complaint = ""
        except (OSError, ValueError) as error:
            self._complain(str(error))
        return self._callers

    def _complain(self, said: str) -> None:
        """Log it once, however many requests there are."""
        if said != self._complaint:
            self._complaint = said
            logger.error("the file of tokens cannot be used, so its last state counts: %s", said)


def read(path: str) -> tuple[Callers, Version]:
    """Return the callers in a file by the digests of their tokens, and the file's version.

    Raises ValueError if there is no such file, if others may change it, or if it is wrong.
    """
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            _refuse_others(path, found)
            given = tomllib.load(file)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    try:
        return parsed(given), _version(found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _version(found: os.stat_result) -> Version:
    return found.st_mtime_ns, found.st_size, found.st_ino


def _refuse_others(path: str, found: os.stat_result) -> None:
    if not hasattr(os, "geteuid"):  # no POSIX: the system's own rights guard the file
        return
    if found.st_uid not in (os.geteuid(), 0):
        raise ValueError(f"it belongs to the user {found.st_uid}, not to you or to root")
    if found.st_mode & OTHERS_WRITE:
        mode = stat.S_IMODE(found.st_mode)
        raise ValueError(f"others can change it (its mode is {mode:04o}): chmod 600 {path}")


def parsed(given: Mapping[str, Any]) -> Callers:
    """Return the callers that a file's content names. Raises ValueError."""
    entries = given.get("token", [])
    if set(given) - {"token"} or not isinstance(entries, list):
        raise ValueError("the file has tables [[token]], and nothing else")
    callers: Callers = {}
    names = set[str]()
    for number, entry in enumerate(entries, 1):
        try:
            digest, caller = _entry(entry)
        except ValueError as error:
            raise ValueError(f"[[token]] number {number}: {error}") from None
        if digest in callers or caller.name in names:
            raise ValueError(f"[[token]] number {number} has the name or the token of another")
        names.add(str(caller.name))
        callers[digest] = caller
    return callers


def _entry(entry: object) -> tuple[str, AuthorizedCaller]:
    if not isinstance(entry, dict) or set(entry) != _FIELDS:
        raise ValueError(f"it has the fields {', '.join(sorted(_FIELDS))}")
    digest = entry["sha256"]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError("sha256 is 64 hexadecimal digits in lower case: the token's SHA-256")
    return digest, caller(entry["name"], entry["names"], entry["rights"])


def caller(name: object, names: object, rights: object) -> AuthorizedCaller:
    """Return a caller, or raise ValueError."""
    if not isinstance(name, str) or not 1 <= len(name) <= 100 or not name.isprintable():
        raise ValueError("name is 1 to 100 printable characters")
    prefixes = _texts("names", names)
    chosen = _texts("rights", rights)
    known: list[Right] = [right for right in RIGHTS if right in chosen]
    if len(known) != len(chosen):
        raise ValueError(f"rights are {', '.join(RIGHTS)}, each at most once")
    return AuthorizedCaller(name, prefixes, frozenset(known))


def _texts(what: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        raise ValueError(f"{what} is a list of texts")
    if not given:
        raise ValueError(f"{what} has at least one text")
    return tuple(given)


def new_token() -> str:
    """Return a new token, of 256 random bits."""
    return BEGINNING + secrets.token_urlsafe(32)


def entry(token: str, made: AuthorizedCaller) -> str:
    """Return the file's entry for a caller with this token."""
    rights = [right for right in RIGHTS if right in made.rights]
    return (
        f"\n[[token]]\nname = {_toml(made.name)}\n"
        f'sha256 = "{sha256(token.encode()).hexdigest()}"\n'
        f"names = [{_list(made.prefixes)}]\nrights = [{_list(rights)}]\n"
    )


def _list(texts: Iterable[str]) -> str:
    return ", ".join(map(_toml, texts))


def _toml(text: object) -> str:
    """Return a text as TOML has it, which is as JSON has it, except for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def add(path: str, made: AuthorizedCaller) -> str:
    """Add a caller to the file, which is created for this user alone. Return its new token.

    Raises ValueError if the file cannot be used, or has a caller with that name.
    """
    token = new_token()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    with open(descriptor, "a", encoding="utf-8") as file:
        callers, _ = read(path)
        if made.name in {one.name for one in callers.values()}:
            raise ValueError(f"{path} has a token with the name {made.name!r}: choose another")
        file.write(entry(token, made))
    return token
