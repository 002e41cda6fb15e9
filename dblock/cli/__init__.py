"""The command line, for crontabs, for deployments and for operators."""
