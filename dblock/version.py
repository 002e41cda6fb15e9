"""Versions that other modules compare."""

#: The version of the tables that this code works with; raised by every migration.
SCHEMA_VERSION = 3
