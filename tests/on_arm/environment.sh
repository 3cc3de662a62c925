#!/usr/bin/env bash
# Makes the folder $1: Python, torch and geonorm for 64-bit ARM, and a command `python` that runs them in QEMU.
# For Debian on x86-64. It adds the architecture arm64 to apt, and installs QEMU and a cross-compiler if they are missing.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
project=$(cd "$(dirname "$0")/../.." && pwd)
torch=2.9.1 # a build for CPUs; newer ones in the registry are for CUDA

command -v apt-get >/dev/null || { echo "test-arm: expected Debian or Ubuntu (apt-get was not found)" >&2; exit 2; }
if ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-g++ >/dev/null ||
  ! dpkg --print-foreign-architectures | grep -qx arm64; then
  [ "$(id -u)" = 0 ] || { echo "test-arm: run it as root once: it installs qemu-user and g++-aarch64-linux-gnu" >&2; exit 2; }
  dpkg --add-architecture arm64
  apt-get update -qq
  apt-get install -y -qq qemu-user g++-aarch64-linux-gnu >/dev/null
fi

# Python of the distribution, unpacked beside the one of this machine.
minimal=$(apt-cache depends python3-minimal:arm64 | grep -om1 'python3\.[0-9]*-minimal')
python=${minimal%-minimal}
mkdir -p "$folder/packages" "$folder/root"
(cd "$folder/packages" && apt-get download -qq 2>/dev/null \
  {libc6,libgcc-s1,libstdc++6,libgomp1,zlib1g,libexpat1,libffi8,libbz2-1.0,liblzma5,libssl3,libuuid1,libcrypt1}:arm64 \
  {libsqlite3-0,libncursesw6,libtinfo6,libreadline8}:arm64 \
  {$python,$minimal,lib$minimal,lib$python-stdlib}:arm64)
for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder/root"; done

# Without dependencies: pip would look them up for this machine's processor.
version=${python#python3.}
python3 -m pip install --quiet --target "$folder/site" --upgrade --no-deps --only-binary=:all: \
  --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 --platform manylinux_2_27_aarch64 \
  --python-version "3.$version" --implementation cp --abi "cp3$version" --abi abi3 --abi none \
  "torch==$torch" numpy typing_extensions sympy mpmath networkx jinja2 markupsafe fsspec filelock \
  pytest pluggy iniconfig packaging pygments hypothesis sortedcontainers expecttest
rm -rf "$folder/packages"

cat >"$folder/python" <<END
#!/bin/sh
# This geonorm, with kernels for ARM.
export PYTHONHOME="$folder/root/usr" PYTHONPATH="$folder/site" PYTHONDONTWRITEBYTECODE=1
unset LD_LIBRARY_PATH
exec qemu-aarch64 -L "$folder/root" "$folder/root/usr/bin/$python" "\$@"
END
chmod +x "$folder/python"

rm -rf "$folder/site/geonorm"
cp -r "$project/src/geonorm" "$folder/site/geonorm"
CXX=aarch64-linux-gnu-g++ python3 "$project/src/geonorm/csrc/build.py" --out "$folder/site/geonorm/ops/cpu/libgeonorm.so"
