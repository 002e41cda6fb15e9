"""Everything that does I/O or waits: time, threads, connections, transactions, notifications."""
