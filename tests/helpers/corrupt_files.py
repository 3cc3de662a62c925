"""What can happen to a file on disk: cut short, a bit turned over, another file in its place."""

from pathlib import Path


def truncate(path: Path, fraction: float = 0.5) -> None:
    """Keep only the beginning."""
    content = path.read_bytes()
    path.write_bytes(content[: int(fraction * len(content))])


def flip_bit(path: Path, fraction: float = 0.5, bit: int = 7) -> None:
    """Turn one bit over, at a place in the file."""
    content = bytearray(path.read_bytes())
    content[int(fraction * len(content))] ^= 1 << bit
    path.write_bytes(bytes(content))


def replace_with_web_page(path: Path) -> None:
    """Another file under the same name, as when a server answers with a page."""
    path.write_text("<html><body>Not found</body></html>\n")
