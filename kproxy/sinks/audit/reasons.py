"""Reasons why the system refuses a file, as one word for counters."""

from __future__ import annotations

import errno

REASONS = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EFBIG: "disk_full",
    errno.EROFS: "read_only",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EIO: "io_error",
    errno.ENOENT: "folder_gone",
    errno.EMFILE: "too_many_files",
    errno.ENFILE: "too_many_files",
}


def reason_of(error: OSError) -> str:
    """Return the reason as one word; `other` for a seldom one, whose text is in `Counters.last_error`."""
    return REASONS.get(error.errno or 0, "other")
