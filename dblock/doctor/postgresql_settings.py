"""PostgreSQL's settings as a fresh session of this role has them, and how to change them."""

from __future__ import annotations

from ..dialects.values import text
from .finding import Patient


def settings(patient: Patient, *names: str) -> dict[str, str]:
    return dict(
        patient.ask(
            "SELECT name, reset_val FROM pg_settings WHERE name = ANY(%(names)s)",
            names=list(names),
        )
    )


def reset(patient: Patient, name: str, wanted: str) -> str:
    """Return the statements that undo a setting at its source: role, database or server."""
    ((source, database),) = patient.ask(
        "SELECT source, pg_catalog.quote_ident(current_database()) FROM pg_settings "
        "WHERE name = %(name)s",
        name=name,
    )
    role = role_of(patient)
    whose = {
        "user": f"ROLE {role}",
        "database": f"DATABASE {database}",
        "database user": f"ROLE {role} IN DATABASE {database}",
    }.get(text(source))
    return f"ALTER {whose} RESET {name};" if whose else system(name, wanted)


def system(name: str, value: str) -> str:
    return f"ALTER SYSTEM SET {name} = {value};\nSELECT pg_reload_conf();"


def role_of(patient: Patient) -> str:
    ((name,),) = patient.ask("SELECT pg_catalog.quote_ident(current_user)")
    return text(name)
