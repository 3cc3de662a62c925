"""Faults injected under load: kills, full disks, damaged files; what survives is counted."""
