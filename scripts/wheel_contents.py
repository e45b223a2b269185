"""Compares what a wheel and an sdist hold with the folders that they were built from.

Usage: wheel_contents.py TREE DIST. A file of the four rooms that is missing from the wheel is a forgotten
`package-data` pattern or `__init__.py`; a file that is too many would land in everybody's site-packages.
"""

import sys
import tarfile
import zipfile
from pathlib import Path

ROOMS = ("spec", "engine", "traces", "replay")


def main(tree: Path, dist: Path) -> str | None:
    """Return what is wrong, or None."""
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    ours = {
        str(path.relative_to(tree)) for room in ROOMS for path in (tree / room).rglob("*") if path.is_file()
    }
    # The build ran in this tree, and tests may have: what they leave behind is not ours.
    ours = {name for name in ours if "__pycache__" not in name}

    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {f"batchspec/{name}" for name in ours}
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    differences = {
        f"missing from {wheel.name}": expected - packed,
        f"too many in {wheel.name}": packed - expected,
        f"missing from {sdist.name}": (ours | {"LICENSE", "NOTICE", "README.md", "setup.py"}) - sources,
    }
    lines = [f"{what}: {', '.join(sorted(names))}" for what, names in differences.items() if names]
    return "\n".join(lines) or None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
