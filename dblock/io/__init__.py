"""What touches the world: time, threads, connections, transactions and notifications."""
