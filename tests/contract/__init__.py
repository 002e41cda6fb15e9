"""One suite that every database passes, a file for each promise."""
