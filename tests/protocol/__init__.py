"""The protocols without a database: they are told the time and what came back."""
