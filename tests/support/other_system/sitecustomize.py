"""A system that lacks what only Linux has, made of this one for kproxy's modules; Python reads this file at its start.

With this folder in PYTHONPATH and KPROXY_TEST_SYSTEM=macos or =windows, whatever kproxy's modules import of the
standard library is a stand-in without the names of LACKING, and modules of ABSENT cannot be imported; all this before
kproxy is imported, and in each process that is started. What libraries import is whole, since trio and pytest know how
to live on those systems and this is not about them. Files below /proc are not there, for anybody.

It shows that nothing of kproxy asks for what is not there. It cannot show how sockets of another kernel behave.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

SYSTEM = os.environ.get("KPROXY_TEST_SYSTEM", "")

EVERYWHERE: dict[str, list[str]] = {
    "ctypes": [],  # see `open_library`
    "os": [
        "MFD_", "P_PID", "SPLICE_", "WEXITED", "WNOWAIT", "copy_file_range", "eventfd", "memfd_create", "pidfd_open",
        "pipe2", "posix_fadvise", "sched_getaffinity", "splice", "waitid",
    ],
    "select": ["EPOLL", "epoll"],
    "signal": ["pidfd_send_signal", "sigtimedwait"],
    "socket": [
        "IP_TRANSPARENT", "MSG_CMSG_CLOEXEC", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_DOMAIN", "SO_MARK", "SO_PEERCRED",
        "TCP_DEFER_ACCEPT", "TCP_INFO", "TCP_QUICKACK", "TCP_USER_TIMEOUT",
    ],
}  # fmt: skip
SYSTEMS: dict[str, dict[str, list[str]]] = {
    "macos": EVERYWHERE
    | {
        "fcntl": ["F_SETPIPE_SZ", "F_GETPIPE_SZ"],
        "socket": [*EVERYWHERE["socket"], "TCP_KEEPIDLE"],
    },
    "windows": EVERYWHERE
    | {
        "mmap": ["MADV_", "MAP_", "PROT_"],
        "os": [
            *EVERYWHERE["os"], "O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "WNOHANG",
            "chown", "fchmod", "fork", "geteuid", "getpgid", "getuid", "killpg", "nice", "pread", "pwrite",
            "set_blocking", "setpgid", "setsid", "statvfs", "sysconf", "uname",
        ],
        "select": [*EVERYWHERE["select"], "POLL", "poll"],
        "signal": [
            *EVERYWHERE["signal"], "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT",
            "SIGSTOP", "SIGUSR1", "SIGUSR2", "SIG_BLOCK", "SIG_SETMASK", "SIG_UNBLOCK", "pthread_kill",
            "pthread_sigmask", "sigwait",
        ],
        "socket": [
            *EVERYWHERE["socket"], "AF_UNIX", "CMSG_", "SCM_RIGHTS", "SO_REUSEPORT", "recv_fds", "send_fds",
        ],
        "subprocess": [],  # see `windows_popen`
    },
}  # fmt: skip
LACKING = SYSTEMS.get(SYSTEM, {})
"""Names by module; one that ends in an underscore, or EPOLL and POLL, stands for all that begin so."""
BEGINNINGS = {"EPOLL", "POLL", "P_PID"}
ABSENT = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"} if SYSTEM == "windows" else set()
EXTRA: dict[str, dict[str, dict[str, object]]] = {
    "macos": {"socket": {"TCP_KEEPALIVE": 4}},  # another name for what is TCP_KEEPIDLE here
    "windows": {"os": {"O_BINARY": 0, "name": "nt"}},
}


class StandIn(types.ModuleType):
    """Module in the place of `whole`, without some of its names."""

    def __init__(self, whole: types.ModuleType, lacking: Iterable[str], extra: Mapping[str, object]) -> None:
        super().__init__(whole.__name__)
        self.whole, self.extra = whole, extra
        self.lacking = {name for name in lacking if not self.is_beginning(name)}
        self.beginnings = tuple(name for name in lacking if self.is_beginning(name))

    @staticmethod
    def is_beginning(name: str) -> bool:
        return name.endswith("_") or name in BEGINNINGS

    def __getattr__(self, name: str) -> object:
        if name in self.extra:
            return self.extra[name]
        if name in self.lacking or (self.beginnings and name.startswith(self.beginnings)):
            raise AttributeError(f"module {self.whole.__name__!r} has no attribute {name!r} on {SYSTEM}")
        return getattr(self.whole, name)


class Library:
    """The C library without Linux's own functions."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole

    def __getattr__(self, name: str) -> object:
        if name in ("prctl", "timerfd_create", "timerfd_settime"):
            raise AttributeError(name)
        return getattr(self.whole, name)


def open_library(name: str | None, *rest: Any, **named: Any) -> object:
    """Open a C library as ctypes does; Windows knows none without a name."""
    if name is not None:
        return sys.modules["ctypes"].CDLL(name, *rest, **named)
    if SYSTEM == "windows":
        raise TypeError("argument of type 'NoneType' is not iterable")
    return Library(sys.modules["ctypes"].CDLL(None, *rest, **named))


def windows_popen(*words: Any, **named: Any) -> object:
    """Start a process as Windows does, which hands over nothing but the standard streams."""
    if named.get("preexec_fn") is not None or named.get("pass_fds"):
        raise ValueError("preexec_fn and pass_fds are not supported on Windows platforms")
    return sys.modules["subprocess"].Popen(*words, **named)


def is_kproxy(names: Mapping[str, Any] | None) -> bool:
    """Return True if these are the names of a module of kproxy."""
    package: str = (names or {}).get("__package__") or (names or {}).get("__name__") or ""
    return package.partition(".")[0] == "kproxy"


def lacking_import(
    name: str, globals: Mapping[str, Any] | None = None, locals: Mapping[str, Any] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (), level: int = 0,
) -> types.ModuleType:  # fmt: skip
    """Import for a module; where it is one of kproxy, of the system that is lacking."""
    if level == 0 and is_kproxy(globals):
        top = name.partition(".")[0]
        if name in ABSENT:
            raise ImportError(f"No module named {name!r} on {SYSTEM}", name=name)
        if top in stand_ins:
            whole_import(name, globals, locals, fromlist, level)
            return stand_ins[top]
    return whole_import(name, globals, locals, fromlist, level)


def no_proc(event: str, arguments: tuple[Any, ...]) -> None:
    """Say of files below /proc that they are not there."""
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc/"):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


if LACKING:
    extras = {name: dict(EXTRA[SYSTEM].get(name, {})) for name in LACKING}
    extras["ctypes"]["CDLL"] = open_library
    if SYSTEM == "windows":
        extras["subprocess"]["Popen"] = windows_popen
    stand_ins = {name: StandIn(import_module(name), names, extras[name]) for name, names in LACKING.items()}
    whole_import = builtins.__import__
    builtins.__import__ = lacking_import
    sys.addaudithook(no_proc)
