"""The operating system: its clock, forks, signals and poll(2)."""
