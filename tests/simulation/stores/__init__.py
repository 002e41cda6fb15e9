"""The databases of the simulation: real ones, whose clocks are virtual."""
