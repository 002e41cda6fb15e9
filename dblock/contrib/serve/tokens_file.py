"""The file of bearer tokens."""

from __future__ import annotations

import os

from starlette.requests import HTTPConnection

from .rights import Caller, Rights


class TokensFile(Rights):
    """The callers that a file names. It is read again when it has changed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def caller(self, request: HTTPConnection) -> Caller:
        raise NotImplementedError
