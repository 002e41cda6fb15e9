"""Counters in a table of the user's own: the handle, its statements, stripes and numbers."""
