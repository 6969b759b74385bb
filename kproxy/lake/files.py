"""Files and folders wherever Spark can read and write them: local, HDFS, object storage.

Strategy: Hadoop's FileSystem, which Spark itself uses, called in the driver's JVM. So a path is `lake`,
`file:/srv/lake`, `hdfs://…` or `s3a://bucket/lake` alike, with the credentials that Spark has. `rename` is one step on
local disks and HDFS; on object storage it copies, so nothing here relies on it being one step (see `compact`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from kproxy.base.errors import LakeError


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Entry of a folder: its name and whole path, its size in bytes (0: a folder)."""

    name: str
    path: str
    is_folder: bool
    size: int


class Files:
    """File system access of one Spark session. Every path may be relative, absolute or a URI."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._path = jvm.org.apache.hadoop.fs.Path  # each dot is a question to Java

    def whole(self, path: str) -> str:
        """Return the path with scheme and all folders: file:/srv/lake for lake."""
        where, system = self._at(path)
        return str(system.makeQualified(where).toString())

    def exists(self, path: str) -> bool:
        where, system = self._at(path)
        return bool(system.exists(where))

    def is_folder(self, path: str) -> bool:
        where, system = self._at(path)
        return bool(system.exists(where) and system.getFileStatus(where).isDirectory())

    def entries(self, path: str) -> list[FileEntry]:
        """Return the entries of a folder by name; none if it is not there."""
        where, system = self._at(path)
        return sorted(map(_entry, system.listStatus(where)), key=lambda one: one.name) if system.exists(where) else []

    def glob(self, pattern: str) -> list[FileEntry]:
        """Return the entries that match a pattern, by path."""
        where, system = self._at(pattern)
        return sorted(map(_entry, system.globStatus(where) or ()), key=lambda one: one.path)

    def size(self, path: str) -> int:
        """Return the bytes of all files below a path."""
        where, system = self._at(path)
        return int(system.getContentSummary(where).getLength()) if system.exists(where) else 0

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; do nothing if it is not there."""
        where, system = self._at(path)
        if not system.delete(where, True) and system.exists(where):
            raise LakeError(f"{path} could not be deleted")

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder, and make the target's folder if need be. Raises LakeError if the target exists."""
        source, system = self._at(old)
        target, _ = self._at(new)
        if system.exists(target):
            raise LakeError(f"{old} cannot become {new}, which is there already")
        system.mkdirs(target.getParent())
        if not system.rename(source, target):
            raise LakeError(f"{old} could not be renamed to {new}")

    def read(self, path: str) -> str:
        """Return the text of a small file. Raises LakeError if it is not there."""
        where, system = self._at(path)
        if not system.exists(where):
            raise LakeError(f"there is no file {path}")
        stream = system.open(where)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a small file, whole or not at all, in place of one that may be there."""
        where, system = self._at(path)
        beside = self._path(where.getParent(), f".{where.getName()}.tmp")
        stream = system.create(beside, True)
        stream.write(bytearray(text, "utf-8"))
        stream.close()
        system.delete(where, False)
        if not system.rename(beside, where):
            raise LakeError(f"{path} could not be written")

    def _at(self, path: str) -> tuple[Any, Any]:
        where = self._path(path)
        return where, where.getFileSystem(self._conf)


def _entry(status: Any) -> FileEntry:
    where = status.getPath()
    folder = bool(status.isDirectory())
    return FileEntry(str(where.getName()), str(where.toString()), folder, 0 if folder else int(status.getLen()))
