"""dblock in web frameworks. Nothing here is imported unless asked for."""
