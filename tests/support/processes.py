"""Facts about processes as Linux tells them: their sockets, the connections to a port."""

from __future__ import annotations

from pathlib import Path


def connections_to(ports: set[int]) -> dict[int, int]:
    """Return this machine's established connections to one of `ports`, as the kernel lists them: {inode: port}."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            remote = int(fields[2].rsplit(":", 1)[1], 16)
            if remote in ports and fields[3] == "01" and fields[9] != "0":
                found[int(fields[9])] = remote
    return found


def sockets_of(pid: int) -> set[int]:
    """Return the inodes of the sockets that a process holds; empty when it is gone."""
    found: set[int] = set()
    try:
        entries = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return found
    for entry in entries:
        try:
            link = str(entry.readlink())
        except OSError:  # closed since we listed it
            continue
        if link.startswith("socket:["):
            found.add(int(link[8:-1]))
    return found
