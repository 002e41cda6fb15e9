"""Databases as users have them: presets, poolers, look-alikes; and what the doctor says of them."""
