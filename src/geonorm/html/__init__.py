"""Self-contained pages, charts and tables."""
