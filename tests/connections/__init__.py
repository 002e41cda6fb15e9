"""Connections of dblock's own: how statements are sent on them, and what that costs."""
