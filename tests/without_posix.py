"""A plugin of pytest: dblock does not see what Windows lacks.

``python -m pytest -p tests.without_posix``. Python itself, pytest and what the tests start are as
ever.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

LACKS = {
    "os": {"fork", "register_at_fork", "geteuid", "getuid", "posix_spawn", "posix_spawnp"}
    | {"O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "waitid", "setsid", "killpg", "getpgid"},
    "select": {"poll"},
    "signal": {"pthread_sigmask", "pthread_kill", "SIGHUP", "SIGQUIT", "SIGCHLD", "SIGKILL"}
    | {"SIGXFSZ", "SIGPIPE", "SIGUSR1", "SIGUSR2", "sigwait", "setitimer"},
}
MODULES = {"fcntl", "termios", "tty", "pty", "resource", "pwd", "grp"}


class Lacking(ModuleType):
    """A module without some of its names."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name in LACKS[self.__name__]:
            raise AttributeError(f"there is no {self.__name__}.{name} here")
        return getattr(self._module, name)


def imports(of: Callable[..., Any]) -> Callable[..., Any]:
    """Return how modules are imported: otherwise in those of dblock."""

    def imported(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        importer = (globals or {}).get("__name__", "").partition(".")[0]
        if importer == "dblock" and level == 0:
            if name in MODULES:
                raise ModuleNotFoundError(f"there is no module {name} here", name=name)
            if name in LACKS:
                return Lacking(of(name))
        return of(name, globals, locals, fromlist, level)

    return imported


assert "dblock" not in sys.modules, "it has seen them"
builtins.__import__ = imports(builtins.__import__)
