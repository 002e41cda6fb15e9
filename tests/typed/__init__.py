"""Programs as users write them, for their type checkers: nothing here is run."""
