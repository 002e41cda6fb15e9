"""The page at ``/``: the holder and the waiters of each name, and the last runs of jobs.

The page itself has no data, so every client may read it. Its script listens to ``/v1/events`` with
its user's token.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, Response

from .routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

    from .service import Service

PAGE = files(__package__).joinpath("page.html").read_text("utf-8")


def policy(page: str) -> str:
    """Return the Content-Security-Policy of a page: its own script and style, and no others."""

    def hashes(tag: str) -> str:
        found = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = (hashlib.sha256(text.encode()).digest() for text in found)
        return " ".join(f"'sha256-{b64encode(digest).decode()}'" for digest in digests)

    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {hashes('script')}",
            f"style-src {hashes('style')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


HEADERS = {
    "Content-Security-Policy": policy(PAGE),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def routes(service: Service) -> list[Route]:
    """Return the route of the page."""

    async def get(request: Request) -> Response:
        return HTMLResponse(PAGE, headers=HEADERS)

    return [Route("GET", "/", get)]
