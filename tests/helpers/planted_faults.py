"""The planted faults of ``benchmarks/``, which are scripts beside the package."""

from benchmarks import faults, faults_in_use, random_faults

__all__ = ["faults", "faults_in_use", "random_faults"]
