"""What dblock costs on top of the database's driver: ``python -m benchmarks``."""
