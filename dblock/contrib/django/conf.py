"""The settings: ``DBLOCK = {"DATABASE": "default", ...}``, all of them optional."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from ...arguments import check_flag, check_identifier
from ...policy import Timeouts


@dataclass(frozen=True, slots=True)
class Conf:
    """``DATABASE`` is an alias of DATABASES; without it the router is asked."""

    database: str | None = None
    schema: str | None = None
    prefix: str = "dblock_"
    label: str | None = None
    timeouts: dict[str, float] = field(default_factory=dict)
    trust_server: bool = False

    def table(self, name: str) -> str:
        """Return a table's name as Django's ``db_table``, which quotes it as a whole."""
        return f'{self.schema}"."{self.prefix}{name}' if self.schema else self.prefix + name


def conf() -> Conf:
    """Read the settings. Raises ImproperlyConfigured if they are wrong."""
    given: dict[str, Any] = getattr(settings, "DBLOCK", {})
    try:
        made = Conf(**{name.lower(): value for name, value in given.items()})
        check_identifier("PREFIX", made.prefix)
        if made.schema is not None:
            check_identifier("SCHEMA", made.schema)
        Timeouts(**made.timeouts)
        check_flag("TRUST_SERVER", made.trust_server)
    except (TypeError, ValueError, AttributeError) as error:
        raise ImproperlyConfigured(f"DBLOCK in the settings: {error}") from error
    if made.database is not None and made.database not in settings.DATABASES:
        raise ImproperlyConfigured(f"DBLOCK in the settings: no such database: {made.database!r}")
    return made
