"""``geonorm`` and ``python -m geonorm``: the command line. Ctrl-C while modules are imported shows no traceback."""

from __future__ import annotations

import sys


def main() -> int:
    """Run ``geonorm``; returns the exit code."""
    try:
        from .cli import main as run

        return run()
    except KeyboardInterrupt:
        print("\ngeonorm: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
