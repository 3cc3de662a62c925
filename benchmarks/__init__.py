"""Scripts that measure: each writes what it found beside it, and its tables into the docs."""
