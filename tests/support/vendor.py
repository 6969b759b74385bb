"""The libraries of the live view's page: fetched by npm as `vendor.json` names them, compared, and copied.

make vendor
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from base64 import b64encode
from hashlib import sha256, sha512
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

VENDOR = Path(__file__).parents[2] / "kproxy" / "admin" / "page" / "vendor"


def vendored() -> list[dict[str, Any]]:
    """Return what vendor.json says of each file."""
    entries: list[dict[str, Any]] = json.loads((VENDOR / "vendor.json").read_text())
    return entries


def place_of(entry: dict[str, Any]) -> Path:
    """Return where a vendored file is."""
    return VENDOR / Path(entry["path"]).name


def fetch(entry: dict[str, Any], folder: Path) -> bytes:
    """Return a file out of its package. Raises ValueError if the package or the file is another one."""
    name = f"{entry['package']}-{entry['version']}.tgz"
    if not (folder / name).exists():
        package = f"{entry['package']}@{entry['version']}"
        subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    packed = (folder / name).read_bytes()
    integrity = f"sha512-{b64encode(sha512(packed).digest()).decode()}"
    with tarfile.open(folder / name) as archive:
        member = archive.extractfile(f"package/{entry['path']}")
        data = b"" if member is None else member.read()
    for what, expected, found in (
        ("integrity", entry["integrity"], integrity),
        ("sha256", entry["sha256"], sha256(data).hexdigest()),
    ):
        if expected != found:
            raise ValueError(f"{name}, {entry['path']}: the {what} is {found}, expected {expected}")
    return data


def main() -> None:
    """Fetch all files, and write them only when all are right."""
    with TemporaryDirectory() as folder:
        files = [(place_of(entry), fetch(entry, Path(folder))) for entry in vendored()]
    for place, data in files:
        place.write_bytes(data)
        sys.stdout.write(f"{place.name}: {len(data)} bytes\n")


if __name__ == "__main__":
    main()
