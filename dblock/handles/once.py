"""A call that is made once: its work and its recorded result are one transaction, the user's."""

from __future__ import annotations

import contextlib
import hashlib
import json
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from ..arguments import Seconds, check_json, check_keep, check_name, check_wait
from ..protocol import once

if TYPE_CHECKING:
    from ..holding.database import Database
    from ..io.borrowed import Borrowable, Borrowed, Root

RESULT_MAX = 2**20


class _Claim(NamedTuple):
    """A key that was claimed in the user's transaction, under a token."""

    transaction: Borrowed
    root: Root | None
    token: str

    @property
    def active(self) -> bool:
        """Whether the transaction is still open."""
        return self.root is not None and self.root.is_active


class Once:
    """A call that takes effect once for its idempotency key, made by :meth:`Locks.once`.

    ``with`` it in your transaction::

        with session.begin():
            with locks.once(session, key) as call:
                if call.replayed:
                    return call.result
                session.add(order)
                call.result = {"order": 7}

    dblock records the key and the result in that transaction, and they commit with your work: all
    or nothing, even if a process crashes at any moment.

    If the block raises, nothing is recorded. Let the error roll back your transaction, or give the
    block a savepoint. If you catch the error and commit, your work so far is kept without the key,
    and the next call does it again.
    """

    def __init__(
        self,
        database: Database,
        on: Borrowable,
        key: str,
        *,
        fingerprint: Any,
        keep: Seconds,
        wait: Seconds | None,
    ) -> None:
        self.key = check_name(key, "an idempotency key")
        self._fingerprint = None if fingerprint is None else fingerprint_of(fingerprint)
        self._keep = check_keep(keep)
        self._wait = check_wait(wait)
        self._database = database
        self._on = on
        self._entered = False
        #: The claim of the key, from the beginning of the block to its end.
        self._claim: _Claim | None = None
        self._replayed = False
        self._result: Any = None

    def __repr__(self) -> str:
        return f"<Once {self.key!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} is in a transaction, which you cannot send to another process")

    @property
    def replayed(self) -> bool:
        """Whether an earlier call was made with this key: then do nothing, and use its result."""
        return self._replayed

    @property
    def active(self) -> bool:
        """Whether the block's transaction is still open, as far as dblock knows without asking.

        If not, the transaction has ended or failed, and no result can be recorded in it.
        """
        claim = self._claim
        return claim is not None and claim.active and claim.transaction.usable

    @property
    def result(self) -> Any:
        """The result of the call. Set it inside the block, to a value that JSON can express.

        It has at most one mebibyte. A replay gets the same value. Raises TypeError or ValueError
        for a value that JSON cannot express or would change (a tuple, a key that is not text), and
        ValueError for a larger one, outside the block, or if the call was made before.
        """
        return self._result

    @result.setter
    def result(self, result: Any) -> None:
        if self._replayed:
            raise ValueError(
                f"the call {self.key!r} was made before, and its result is recorded: "
                "look at call.replayed first"
            )
        if self._claim is None:
            raise ValueError(
                f"the result of the call {self.key!r} is recorded at the end of its block: set it "
                "inside `with locks.once(...)`"
            )
        _recorded(result)  # a bad result raises here, where the user sets it
        self._result = result

    def __enter__(self) -> Self:
        if self._entered:
            raise ValueError(f"{self!r} is entered once: make another one with locks.once()")
        database = self._database
        transaction = database.borrow(self._on)
        token = database.runtime.token(16)
        recorded = database.run(
            once.claim(
                database.exchange(self.key, wait=self._wait), token, self._fingerprint, self._keep
            ),
            transaction,
        )
        self._entered, self._claim = True, _Claim(transaction, transaction.root, token)
        if recorded is not None:
            self._replayed, self._result = True, json.loads(recorded)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._replayed:
                return
            if kind is not None:
                self._forget()
                return
            self._finish()
        finally:
            self._claim = None

    def _finish(self) -> None:
        """Record the result."""
        claim = self._claim
        try:
            recorded = _recorded(self._result)  # the user may have changed the object since
            if claim is None or not claim.active:
                raise once.gone(self.key)
            exchange = self._database.exchange(self.key)
            self._database.run(once.finish(exchange, claim.token, recorded), claim.transaction)
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Delete the key, in case the transaction goes on anyway."""
        claim = self._claim
        if claim is not None and claim.active:
            exchange = self._database.exchange(self.key)
            # The statement fails if the transaction cannot go on.
            with contextlib.suppress(Exception):
                self._database.run(once.forget(exchange, claim.token), claim.transaction)


def fingerprint_of(payload: Any) -> str:
    """Return a hash of a payload: of a body, as bytes or text, or of a value that JSON can express.

    The hashes of bodies and of values differ: the body ``1`` is not the number 1.
    """
    kind = b"body:"
    if isinstance(payload, str):
        payload = payload.encode("utf-8", "surrogatepass")
    elif not isinstance(payload, bytes | bytearray | memoryview):
        kind, payload = b"json:", check_json("a fingerprint", payload, sort=True).encode()
    return hashlib.sha256(kind + bytes(payload)).hexdigest()


def _recorded(result: Any) -> str:
    """Return the JSON that is recorded of a result; a replay gets an equal result."""
    recorded = check_json("a result", result)
    if json.loads(recorded) != result:
        raise TypeError(
            "a result is the same in the first call and in a replay, and JSON would make another "
            "one of this: give dicts whose keys are text, not numbers, and lists, not tuples"
        )
    if len(recorded) > RESULT_MAX:
        raise ValueError(
            f"a result is at most {RESULT_MAX} characters of JSON, this one has {len(recorded)}: "
            "keep the rest in your own table, and its key in the result"
        )
    return recorded
