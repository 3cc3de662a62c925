"""Compiles the native kernels into one shared library, with nothing but a C++ compiler.

Run by the package's own build (setup.py), or by hand: ``python src/geonorm/csrc/build.py``.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent
TARGET = SOURCES.parent / "ops" / "cpu" / "libgeonorm.so"  # no Python version in its name: any interpreter can load it
# GCC 12 finds uninitialized values in its own headers; a unit for one dtype leaves the functions of others unused.
WARNINGS = ["-Wall", "-Wextra", "-Wno-uninitialized", "-Wno-maybe-uninitialized", "-Wno-unused-function"]
COMMON = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-pthread", *WARNINGS]
# Neither -fno-* changes a result: errno and the floating-point exception flags are never read.
FAST = ["-O2", "-fno-math-errno", "-fno-trapping-math"]
SANITIZE = {  # by what they look for: wrong addresses and undefined behaviour, or races between threads
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}
SETS: dict[str, list[str]] = {
    "baseline": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c", "-mprefer-vector-width=512"],
}
ELEMENTS = ["float", "double", "bf16", "f16"]  # each in an object of its own, so that all cores have work
NEEDS = {"avx2": ["AVX2", "FMA", "F16C"], "avx512": ["AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL"]}


def compiler() -> str | None:
    """The C++ compiler to use: $CXX, or the first that is found."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((found for name in names if (found := shutil.which(name))), None)


def target_machine(cxx: str) -> str:
    """The processor that the compiler makes code for, which a cross-compiler does not run on."""
    asked = subprocess.run([cxx, "-dumpmachine"], capture_output=True, text=True, check=False).stdout
    return (asked.partition("-")[0].strip() or platform.machine()).lower()


def own_sets(cxx: str) -> list[str]:
    """The best instruction set of this machine, and the baseline, which every machine has."""
    asked = subprocess.run(
        [cxx, "-march=native", "-dM", "-E", "-x", "c++", os.devnull], capture_output=True, text=True, check=False
    ).stdout
    best = next((name for name in ("avx512", "avx2") if all(f" __{flag}__ " in asked for flag in NEEDS[name])), None)
    return ["baseline", best] if best else ["baseline"]


def is_fresh(target: Path) -> bool:
    """Whether the library exists and is newer than all its sources."""
    newest = max(source.stat().st_mtime for source in SOURCES.iterdir() if source.is_file())
    return target.exists() and target.stat().st_mtime > newest


def build(target: Path = TARGET, sanitize: str = "", only: str | None = None, portable: bool = True) -> None:
    """Compile into ``target``; raises if there is no compiler or it fails.

    For all instruction sets, among which the library chooses when it is loaded; if not ``portable``, for those of this
    machine, which takes less time; or ``only`` for one. ``sanitize``: a key of ``SANITIZE``.
    """
    cxx = compiler()
    if cxx is None:
        raise FileNotFoundError("no C++ compiler found (looked for $CXX, c++, g++, clang++)")
    several = target_machine(cxx) in ("x86_64", "amd64") and only is None
    names = (list(SETS) if portable else own_sets(cxx)) if several else ["baseline"]
    sets = {name: SETS[only or name] for name in names}
    flags = COMMON + (["-O1", "-g", "-fno-omit-frame-pointer", *SANITIZE[sanitize]] if sanitize else FAST)
    there = [f"-DGEONORM_HAS_{name.upper()}" for name in sets]
    with tempfile.TemporaryDirectory() as folder:
        # Decisions in entry.cpp must be the same on all machines, so it is compiled without fused multiply-add.
        exact = "-ffp-contract=off"
        jobs = {"entry": [exact, *there, str(SOURCES / "entry.cpp")]}
        for name, extra in reversed(sets.items()):  # those that take longest first, so that no core ends up alone
            # The baseline is for machines without AVX2: less optimized, it compiles in two thirds of the time.
            level = ["-O1"] if name == "baseline" and len(sets) > 1 else []
            own = [f"-DGEONORM_ISA={name}", *extra, *level, str(SOURCES / "kernels.cpp")]
            jobs |= {f"{name}-{element}": [f"-DGEONORM_ELEMENT={element}", *own] for element in ELEMENTS}
            jobs[name] = own

        def run(arguments: list[str]) -> None:
            subprocess.run([cxx, *flags, *arguments], check=True)

        with ThreadPoolExecutor(os.cpu_count()) as workers:
            list(workers.map(lambda job: run(["-c", *jobs[job], "-o", f"{folder}/{job}.o"]), jobs))
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(folder) / target.name
        run(["-shared", *(f"{folder}/{job}.o" for job in jobs), "-o", str(made)])
        fresh = target.with_suffix(".new")
        shutil.copyfile(made, fresh)
        os.replace(fresh, target)  # a process that has the old one open keeps it


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TARGET)
    parser.add_argument(
        "--sanitize", choices=list(SANITIZE), default="", help="with AddressSanitizer and UBSan, or TSan"
    )
    parser.add_argument("--only", choices=list(SETS), help="only for this instruction set; builds faster")
    chosen = parser.parse_args()
    build(chosen.out, chosen.sanitize, chosen.only)
    print(chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
