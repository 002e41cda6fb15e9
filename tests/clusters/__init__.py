"""Clusters of several servers that the tests start themselves, and break."""
