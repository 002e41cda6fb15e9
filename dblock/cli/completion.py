"""Completes names of locks in a shell.

The user has pressed a key and waits: if anything goes wrong, it soon completes nothing.
"""

from __future__ import annotations

import contextlib
import io
import re
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from .default import Default

if TYPE_CHECKING:
    from ..locks import Locks
    from ..quorum.quorum import Quorum

#: Seconds after which it completes nothing.
PATIENCE = 2.0
MOST = 200
# Names without a special character of any shell. Others have to be quoted, so they are left out.
_PLAIN = re.compile(r"[\w./][\w./:@+#%,-]*")


def names(ctx: click.Context, prefix: str) -> list[str]:
    """Return names that begin with a prefix: of locks that are held or waited for, and of jobs."""
    found: list[str] = []
    with (
        contextlib.suppress(Exception, KeyboardInterrupt),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        from .. import locks  # noqa: F401 - the patience is for what may never come, not for this

        # A file or a server may never answer. The process ends without waiting for this thread.
        thread = threading.Thread(target=_look, args=(ctx.params, prefix, found), daemon=True)
        thread.start()
        thread.join(PATIENCE)
    return found


def _locks(params: dict[str, Any]) -> Locks | Quorum | None:
    """Return the locks that a command line is about. None if there are none yet."""
    from ..locks import Locks
    from ..policy import Timeouts
    from ..quorum.quorum import Quorum
    from .url_file import UrlFile

    if "url" not in params:  # a framework's command, whose settings are not loaded
        return None
    urls = [url.strip() for url in params["url"] or ()]
    if not urls and params["url_file"] is not None:
        urls = list(UrlFile(params["url_file"]).urls)
    there: dict[str, Any] = {
        "timeouts": Timeouts(connect=1.0, query=0.8, socket=1.0),
        "schema": params["schema"],
        "prefix": params["prefix"],
        "trust_server": params["trust_server"],
    }
    for url in urls or [f"sqlite:///{Default.find().file}"]:
        locks = Locks(url, **there)
        file = Path(str(locks.engine.url.database))
        if locks._database.dialect.traits.one_writer and not file.is_file():
            return None  # a look would create the file
    return Quorum(urls, **there) if len(urls) > 1 else locks


def _look(params: dict[str, Any], prefix: str, found: list[str]) -> None:
    from ..locks import Locks

    with contextlib.suppress(Exception):
        locks = _locks(params)
        if locks is None:
            return
        known = {state.name for state in locks.list()}
        if isinstance(locks, Locks):
            known |= {run.name for run in locks.last_runs()}
        begun = (name for name in known if name.startswith(prefix))
        found += sorted(name for name in begun if _PLAIN.fullmatch(name))[:MOST]


class Bash(BashComplete):
    """click's completion, for words with a colon too.

    bash takes ``order:42`` for three words, and a URL for more, and replaces the last one alone.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._typed = 0

    def get_completion_args(self) -> tuple[list[str], str]:
        args, last = super().get_completion_args()
        words: list[str] = []
        joins = False
        for part in [*args, last]:
            breaks = bool(words) and re.fullmatch("[:=@]+", part) is not None
            if breaks or joins:
                words[-1] += part
            else:
                words.append(part)
            joins = breaks
        *whole, word = words
        value = word.partition("=")[2] if word.startswith("-") else word
        self._typed = len(value) - (0 if re.fullmatch("[:=@]+", last) else len(last))
        return whole, word

    def format_completion(self, item: CompletionItem) -> str:
        typed = max(self._typed, 0) if item.type == "plain" else 0
        return f"{item.type},{item.value[typed:]}"


add_completion_class(Bash)
