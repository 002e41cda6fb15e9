"""Small projects of users', made by following the pages of the docs word for word."""
