"""What this process holds, and how it is kept."""
