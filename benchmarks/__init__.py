"""Measurement scripts: each stores its results in this folder, and writes its tables into the docs."""
