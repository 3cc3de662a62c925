"""Compiles the native kernels if there is a compiler. All other metadata is in pyproject.toml."""

import os
import sys
from pathlib import Path
from runpy import run_path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
LIBRARY = Path("geonorm") / "ops" / "cpu" / "libgeonorm.so"


class BuildWithKernels(build_py):
    """The usual build, and the shared library. Without a compiler geonorm is installed too, and runs on torch."""

    def run(self) -> None:
        super().run()
        root = HERE / "src" if self.editable_mode else Path(self.build_lib)
        kernels = run_path(str(HERE / "src" / "geonorm" / "csrc" / "build.py"))
        if self.editable_mode and kernels["is_fresh"](root / LIBRARY):
            return
        try:
            kernels["build"](root / LIBRARY, portable=not self.editable_mode)
        except Exception as error:
            if os.environ.get("GEONORM_REQUIRE_NATIVE"):
                raise
            note = "geonorm: native kernels were not built"
            print(f"{note} ({error}); the package works without them, more slowly.", file=sys.stderr)


class WithLibrary(Distribution):
    """A package that holds a compiled library, so that its files go to the root of the wheel."""

    def has_ext_modules(self) -> bool:
        """Yes, although setuptools does not compile it."""
        return True


class WheelOfThisPlatform(bdist_wheel):
    """A wheel with a shared library: for one platform, and any Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Any Python 3, no ABI, this platform."""
        return "py3", "none", super().get_tag()[2]


setup(distclass=WithLibrary, cmdclass={"build_py": BuildWithKernels, "bdist_wheel": WheelOfThisPlatform})
