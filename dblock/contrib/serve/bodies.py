"""The bodies of requests, checked before any I/O."""
