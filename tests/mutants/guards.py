"""Which tests guard a part of dblock: the tests that find the mutants planted in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from difflib import get_close_matches

from tests.mutants.code import Code, Place
from tests.mutants.mutant import Mutant

#: The number of names that an error proposes.
NEAREST = 6


def guards_of(asked: str, code: Code, mutants: Sequence[Mutant]) -> str:
    """Return the tests that guard a part of dblock, each with the mutants that it has to find.

    ``asked`` is the end of a qualified name (`renew`, `Lease.renew`, `protocol.renew`), a file or
    a folder (`dblock/lease.py`, `protocol/waiting`). A method may be one that the class inherits.
    If no mutant is in a function, the tests of its class or module are returned; and if there are
    none, the files of tests that name it. Raises LookupError if dblock has nothing of that name.
    """
    names = code.ending(asked) or inherited(asked, code)
    if not names:
        return listed(asked, planted_in(files_at(asked, code), code, mutants))
    word = last = asked.rpartition(".")[2]
    text = ""
    if len(code.ending(last)) > len(names):
        text = f"dblock has other places of this name: --tests-of {last}\n"
    while not (found := planted_in(places_of(names, code), code, mutants)):
        text += f"No mutant is in {asked}.\n"
        if not (outer := around(names, code)):
            break
        names, asked = outer, " and ".join(outer)
    return f"{text}{listed(asked, found) if found else naming(word, code)}"


def inherited(asked: str, code: Code) -> list[str]:
    """Return the names under which the base classes of a class define its method."""
    owner, _, method = asked.rpartition(".")
    for base in code.bases.get(owner.rpartition(".")[2], ()):
        name = f"{base}.{method}"
        if found := code.ending(name) or inherited(name, code):
            return found
    return []


def naming(word: str, code: Code) -> str:
    """Return the files of tests that name something, the most often first."""
    pattern = re.compile(rf"\b{re.escape(word)}\b")
    times = {
        str(path.relative_to(code.root)): len(pattern.findall(path.read_text()))
        for path in (code.root / "tests").rglob("test_*.py")
    }
    most = sorted((file for file in times if times[file]), key=lambda file: (-times[file], file))
    files = "\n".join(most[:NEAREST]) or "none"
    return f"No mutant is around it either. Files of tests that name {word}:\n{files}\n"


def places_of(names: Collection[str], code: Code) -> list[Place]:
    """Return the lines of these names. A package is all of its modules."""
    within = tuple(f"{name}." for name in names)
    full = [name for name in code.names if name in names or name.startswith(within)]
    return [place for name in full for place in code.find(name)]


def around(names: Collection[str], code: Code) -> list[str]:
    """Return the classes and modules that these names are defined in."""
    outer = {name: name.rpartition(".")[0] for name in names}
    same_file = (one for name, one in outer.items() if one and code.file(one) == code.file(name))
    return sorted(set(same_file))


def files_at(path: str, code: Code) -> list[Place]:
    """Return the whole files at the end of a path. Raises LookupError if there are none."""
    end = f"/{path.strip('/')}/"
    if found := [file for file in code.texts if end in f"/{file}/"]:
        return [Place(file, 0, code.texts[file].count("\n") + 1) for file in found]
    like = ", ".join(nearest(path, code)) or "none; say a function, class, module, file or folder"
    raise LookupError(f"dblock has no {path!r}. The nearest names: {like}")


def planted_in(places: Collection[Place], code: Code, mutants: Sequence[Mutant]) -> list[Mutant]:
    """Return the mutants that change one of these lines."""
    files = {place.file for place in places}
    return [
        mutant
        for mutant in mutants
        if code.file(mutant.where) in files
        and any(
            changed.file == place.file and changed.first < place.last and place.first < changed.last
            for changed in code.search(mutant.where, mutant.old)
            for place in places
        )
    ]


def listed(asked: str, mutants: Sequence[Mutant]) -> str:
    """Return the tests, below each its mutants."""
    if not mutants:
        return f"No mutant is in {asked}.\n"
    of_test = defaultdict[str, list[Mutant]](list)
    for mutant in mutants:
        of_test[mutant.test].append(mutant)
    lines = [f"These tests guard {asked}, each with the mutants that it has to find:"]
    for test in sorted(of_test):
        lines.append(test)
        lines += [f"    {one.name}, in {one.where}: {one.promise}" for one in of_test[test]]
    return "".join(f"{line}\n" for line in lines)


def nearest(asked: str, code: Code) -> list[str]:
    """Return names like this one: first the places that share its last part."""
    if "/" in asked:
        return get_close_matches(asked, code.texts, NEAREST)
    size = asked.count(".") + 1
    ends = {".".join(name.split(".")[-size:]) for name in code.names}
    same = [end for end in ends if end.endswith(f".{asked.rpartition('.')[2]}")]
    like = [*get_close_matches(asked, same, NEAREST, 0), *get_close_matches(asked, ends, NEAREST)]
    return list(dict.fromkeys(like))[:NEAREST]
