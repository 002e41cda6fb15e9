"""The holds of this process, and the keeper that renews them."""
