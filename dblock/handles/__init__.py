"""The handles: what a user takes, holds and releases."""
