"""One run of a few threads, of which one goes at a time, by the scheduler's leave.

A thread can be taken off before each line of the code that is looked at, and where it waits. Time
is virtual: it passes only when a wait ends because it lasted too long. So a run is what its choices
make it, and the same choices make the same run.

The threads are real ones, with a trace function that asks here before each line; those that dblock
starts are among them. What they wait for is in :mod:`.standard`, which stands for ``threading`` and
its like.
"""

from __future__ import annotations

import _thread
import dis
import linecache
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tests.patience import SECONDS

#: How often no thread here comes to a place, if it comes to its end.
ENDLESS = 500
#: What it costs to choose what is not allowed.
NEVER = 1_000_000


class Abandoned(BaseException):
    """Ends a thread whose run is over."""


class Stuck(AssertionError):
    """Nobody can go on, or they go round for ever."""


class Where(NamedTuple):
    """A place in a run, which stays the same when other lines move.

    ``thread`` is "at" a ``statement`` of a ``function``, before it, for the ``nth`` time; or it
    "waits" in it, or "ends" after it.
    """

    thread: str
    state: str
    function: str
    statement: str
    nth: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Which threads may go on at a place: the first one, unless somebody decides otherwise.

    ``costs`` tells what deviates: to take off a thread that could go on, and to let time pass
    although somebody could.
    """

    where: Where
    threads: Sequence[str]
    costs: Sequence[int]


#: Returns the number of the thread that is to go on.
Decide = Callable[[Choice], int]


@dataclass(frozen=True, slots=True)
class Rules:
    """Where threads are taken off, and what it costs to let time pass although somebody can go."""

    looked_at: Callable[[CodeType], bool]
    early: int = 1


class Thread:
    """One thread of a run."""

    def __init__(self, name: str, function: Callable[[], object]) -> None:
        self.name = name
        self.function = function
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.alike: object = self
        self.begun = False
        self.ended = False
        #: What it waits for, and until when.
        self.ready: Callable[[], bool] | None = None
        self.until = math.inf
        #: The function it is in and the statement there, and how often it came to each.
        self.place = ("", "")
        self.times: Counter[tuple[str, str, str]] = Counter()

    def where(self, state: str) -> Where:
        """Count and return the place."""
        key = (state, *self.place)
        self.times[key] = nth = self.times[key] + 1
        return Where(self.name, *key, nth)

    def __str__(self) -> str:
        state = "at" if self.ready is None else "waits at"
        return f"{self.name} {state} {self.place[0]} `{self.place[1]}`"


class Run:
    """One run of some threads."""

    def __init__(self, rules: Rules, decide: Decide) -> None:
        self.choices: list[Choice] = []
        self.threads: list[Thread] = []
        #: The thread that goes.
        self.current: Thread | None = None
        self.over = False
        self.now = 1000.0
        #: Called with the next moment, where nobody can go on before that.
        self.idle: Callable[[float], object] = lambda moment: None
        self._rules = rules
        self._decide = decide
        self._error: BaseException | None = None
        self._finished = _thread.allocate_lock()
        self._finished.acquire()

    # --- for scenarios -----------------------------------------------------------------------

    def start(self, name: str, function: Callable[[], object], *, alike: object = None) -> Thread:
        """Add a thread, which begins when it is chosen.

        It makes no difference which of those that are ``alike`` begins first.
        """
        before = sum(thread.name.partition("#")[0] == name for thread in self.threads)
        thread = Thread(f"{name}#{before + 1}" if before else name, function)
        thread.alike = thread if alike is None else alike
        self.threads.append(thread)
        return thread

    def go(self) -> None:
        """Run all threads to their ends. Raises what one of them raises, and Stuck."""
        try:
            self._hand_on(None)
            if not self._finished.acquire(timeout=SECONDS):
                raise AssertionError("a thread waits for what is not virtual")
        finally:
            self.over, self.current = True, None
        for thread in self.threads:
            if thread.begun and not thread.ended:
                thread.baton.release()
                self._finished.acquire()
        if self._error is not None:
            raise self._error

    def expect(self, so: bool, otherwise: str) -> None:
        """As ``assert``, where dblock logs what is raised and goes on."""
        if not so:
            self._fail(AssertionError(otherwise))

    def sleep(self, seconds: float) -> None:
        self.wait(lambda: False, seconds)

    def pause(self, name: str) -> None:
        """Let the thread be taken off here, as before a line of dblock's."""
        self._point(("pause", name))

    # --- for what threads wait for -----------------------------------------------------------

    def wait(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Let the thread that goes wait until something is so; return whether it came to be."""
        me = self.current
        if me is None:
            if not ready() and (seconds is None or seconds > 0):
                raise Abandoned if self.over else Stuck("only the threads of a run can wait")
            return ready()
        me.ready = ready
        me.until = math.inf if seconds is None else self.now + seconds
        if not ready() and me.until > self.now:
            self._hand_on(me)
            self._rest(me)
        came = me.ready is None or ready()
        me.ready = None
        return came

    # --- inside ------------------------------------------------------------------------------

    def _live(self, me: Thread) -> None:
        """The life of a thread."""
        sys.settrace(self._trace)
        try:
            me.function()
        except Abandoned:
            pass
        except BaseException as error:
            self._fail(error)
        finally:
            sys.settrace(None)
            me.ended = True
        if self.over:
            self._finished.release()
        else:
            self._hand_on(me)

    @property
    def _going(self) -> Thread:
        assert self.current is not None
        return self.current

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if self._rules.looked_at(frame.f_code) else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line" and not self.over and self._going.ready is None:
            here = place(frame.f_code, frame.f_lineno)
            if here is not None:
                self._point(here)
        return self._line

    def _point(self, at: tuple[str, str]) -> None:
        """Before a line: go on, or let another thread go first."""
        me = self._going
        me.place = at
        where = me.where("at")
        if where.nth > ENDLESS:
            self._fail(Stuck(f"they go round for ever:\n{self._state()}"))
            raise Abandoned
        ready, late = self._others(me)
        if not ready and not late:
            return
        costs = [0] + [1] * len(ready) + [self._rules.early] * len(late)
        chosen = self._choose(where, [me, *ready, *late], costs)
        if chosen is not me:
            self._wake(chosen)
            self._rest(me)

    def _hand_on(self, me: Thread | None) -> None:
        """Let another thread go on, since ``me`` cannot; None before the first."""
        ready, late = self._others(None)
        if not ready and late:
            self.idle(late[0].until)
        options = [*ready, *late]
        if not options and not all(thread.ended for thread in self.threads):
            self._fail(Stuck(f"nobody can go on:\n{self._state()}"))
        if not options or self._error is not None:
            self._finished.release()
            return
        chosen = options[0]
        if len(options) > 1:
            where = Where("", "begin", "", "", 1)
            if me is not None:
                where = me.where("ends" if me.ended else "waits")
            costs = [0] * len(ready) + [self._rules.early if ready else 0] * len(late)
            chosen = self._choose(where, options, costs)
        self._wake(chosen)

    def _others(self, me: Thread | None) -> tuple[list[Thread], list[Thread]]:
        """Return which others can go on, and which could if time passed: who waits the least."""
        ready: list[Thread] = []
        late: list[Thread] = []
        alike: set[object] = set()
        for thread in self.threads:
            if thread is me or thread.ended:
                continue
            if not thread.begun:
                if thread.alike in alike:
                    continue  # it makes no difference which of them begins
                alike.add(thread.alike)
            if thread.ready is None or thread.until <= self.now or thread.ready():
                ready.append(thread)
            elif thread.until < math.inf:
                if late and thread.until < late[0].until:
                    late.clear()
                if not late or thread.until == late[0].until:
                    late.append(thread)
        return ready, late

    def _choose(self, where: Where, options: list[Thread], costs: list[int]) -> Thread:
        choice = Choice(where, [thread.name for thread in options], costs)
        self.choices.append(choice)
        return options[self._decide(choice)]

    def _wake(self, chosen: Thread) -> None:
        """Let a thread go. One that still waits for something has waited long enough."""
        if chosen.ready is not None:
            if chosen.ready():
                chosen.ready = None
            else:
                self.now = max(self.now, chosen.until)
        self.current = chosen
        if chosen.begun:
            chosen.baton.release()
        else:
            chosen.begun = True
            _begin(partial(self._live, chosen))

    def _rest(self, me: Thread) -> None:
        """Wait to be woken."""
        me.baton.acquire()
        if self.over:
            raise Abandoned

    def _state(self) -> str:
        return "\n".join(f"  {thread}" for thread in self.threads if not thread.ended)


_unused: list[SimpleQueue[Callable[[], object]]] = []


def _begin(function: Callable[[], object]) -> None:
    """Run a function in a thread: one that is left over from an earlier run, if there is one."""
    if _unused:
        _unused.pop().put(function)
        return
    begun: SimpleQueue[Callable[[], object]] = SimpleQueue()
    begun.put(function)
    _thread.start_new_thread(_carry_on, (begun,))


def _carry_on(begun: SimpleQueue[Callable[[], object]]) -> None:
    while True:
        begun.get()()
        _unused.append(begun)


_places: dict[tuple[int, int], tuple[CodeType, tuple[str, str] | None]] = {}

#: How instructions are called that touch nothing but a thread's own variables, and constants.
_PRIVATE = (
    *("LOAD_FAST", "STORE_FAST", "LOAD_CONST", "LOAD_GLOBAL", "BUILD_", "COMPARE_OP", "IS_OP"),
    *("BINARY_OP", "POP_", "PUSH_", "COPY", "SWAP", "JUMP_", "RETURN_", "RESUME", "NOP"),
)


def place(code: CodeType, line: int) -> tuple[str, str] | None:
    """The function and the statement of a line; None if nobody else can notice when it runs.

    To take a thread off before such a line is the same as to do so before the next one.
    """
    found = _places.get((id(code), line))  # to compare code takes its time
    if found is None:
        here = (step for step in dis.get_instructions(code) if _line_of(step) == line)
        private = all(step.opname.startswith(_PRIVATE) for step in here)
        statement = linecache.getline(code.co_filename, line).strip()
        statement = statement if len(statement) < 44 else f"{statement[:43]}…"
        found = _places[id(code), line] = (code, None if private else (code.co_qualname, statement))
    return found[1]


def _line_of(step: dis.Instruction) -> int | None:
    return None if step.positions is None else step.positions.lineno
