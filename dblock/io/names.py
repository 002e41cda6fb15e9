"""What a process remembers of the names that it has had, so that it asks for them in less time."""

from __future__ import annotations

# A name that was waited for is hot for so many seconds after it was got. So many are remembered.
LASTS, MOST = 1.0, 1024


class Names:
    """A name that is not here has a row too, perhaps; one that is here has one, most likely."""

    def __init__(self) -> None:
        #: Until when each is hot.
        self._hot: dict[str, float] = {}
        #: Those that others had when they were asked for last.
        self._taken: set[str] = set()

    def note_refusal(self, name: str) -> None:
        """Take down that others have a name."""
        if len(self._taken) >= MOST:
            self._taken.clear()
        self._taken.add(name)

    def taken(self, name: str) -> bool:
        """Return whether others had a name when it was asked for last."""
        return name in self._taken

    def note(self, name: str, contended: bool, now: float) -> None:
        """Take down that a name was got, and whether others wanted it too."""
        self._taken.discard(name)
        if len(self._hot) >= MOST:
            self._hot.clear()
        if contended:
            self._hot[name] = now + LASTS
        else:
            self._hot.setdefault(name, 0.0)

    def known(self, name: str) -> bool:
        """Return whether this process has had it."""
        return name in self._hot

    def hot(self, name: str, now: float) -> bool:
        """Return whether who wants it is likely to wait, which holds for one wait."""
        until = self._hot.get(name, 0.0)
        if until:
            self._hot[name] = 0.0
        return until > now


class FreedSlots:
    """The slots that this process has given back, of semaphores that had one at once for it.

    Others begin their search at random, so a slot that nobody is short of is free, most likely.
    Threads do not ask for the same one. Where slots are waited for, each is another's soon.
    """

    def __init__(self) -> None:
        #: Their numbers, by semaphore; the last one was given back last.
        self._numbers: dict[str, dict[int, None]] = {}

    def note(self, semaphore: str) -> None:
        """Take down that a slot was had at once."""
        if semaphore not in self._numbers:
            if len(self._numbers) >= MOST:
                self._numbers.clear()
            self._numbers[semaphore] = {}

    def forget(self, semaphore: str) -> None:
        """Forget them, since one has to be waited for."""
        self._numbers.pop(semaphore, None)

    def give_back(self, semaphore: str, number: int) -> None:
        """Take down that a slot is given back."""
        numbers = self._numbers.get(semaphore)
        if numbers is not None:
            numbers[number] = None

    def pop(self, semaphore: str, limit: int) -> int | None:
        """Return one that is within the limit, which nobody else here asks for then."""
        numbers = self._numbers.get(semaphore)
        while numbers:
            try:
                number, _ = numbers.popitem()
            except KeyError:  # another thread has it
                break
            if number <= limit:
                return number
        return None
