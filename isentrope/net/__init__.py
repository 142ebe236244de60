"""HTTP for the whole package: the one place that listens (server, app) and the one that asks (client), and keys."""
