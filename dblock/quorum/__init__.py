"""A majority of independent databases as one lock server; see :class:`.Quorum`."""
