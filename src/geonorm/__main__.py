"""``python -m geonorm``: the command line."""

from .cli import main

raise SystemExit(main())
