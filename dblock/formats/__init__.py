"""States and runs in the formats of other programs: JSON, and Prometheus's text."""
