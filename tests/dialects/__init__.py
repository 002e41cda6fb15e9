"""What each database is asked."""
