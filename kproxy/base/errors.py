"""Every exception that kproxy raises on purpose, in one tree.

    KproxyError
    ├── InputError                  bad bytes, files or requests; the message has problem and position
    │   ├── WireError               (kproxy.protocol)
    │   │   ├── DecodeError         a frame that does not follow its grammar
    │   │   ├── EncodeError         a value that does not fit its grammar
    │   │   └── RecordsError        a record batch that cannot be read
    │   ├── ProtocolError           a frame not allowed at its position in the stream; closes its connection
    │   ├── LoginFailed             failed SASL on either side; the message has no secrets
    │   │   └── LoginRefused        credentials that the other side has refused
    │   ├── DocumentError           all mistakes of a rule or config file
    │   ├── FilterError             a malformed filter, with the position
    │   ├── CaptureError            a malformed or damaged capture, with the position
    │   ├── NoSuchRule              an unknown rule name
    │   ├── RuleInUse               a change that the rule's source does not allow
    │   ├── ConfigRefused           a config that cannot be applied at run time or by this request
    │   └── LakeError               an unusable path, source or table of the pipeline
    └── InternalError               a bug or an unusable environment
        ├── UnusableSetting         a valid setting that this environment cannot use, with its path
        ├── NotEverywhere           rules that a worker process failed to prepare, so none commits
        └── UnknownTable            a table or column that is not declared

Messages are lower case, without a full stop: `expected X, got Y (at Z)`.
"""

RENAMED: dict[str, dict[str, tuple[str, ...]]] = {  # by sort, old name: new names; to be removed after 0.1
    "key": {
        "release": ("resume",),
        "lasting": ("permanent",),
        "counts": ("count",),
        "count_per": ("count_scope",),
        "then": ("on_timeout", "connection"),
        "how": ("close_with", "defect", "omit_as"),
        "way": ("direction",),
        "most": ("max_frames", "max_bytes"),
        "by": ("offset_by",),
        "to": ("set_to",),
        "hold_up_to": ("buffer_threshold",),
        "held_bytes": ("max_buffered_bytes",),
        "held_timeout": ("buffer_timeout",),
        "write_stall": ("write_timeout",),
        "always": ("record_from_start",),
        "kept": ("buffer_size",),
        "detail": ("level",),
        "details": ("level_by_api",),
    },
    "value": {
        "observe": ("dry_run",),
        "undecided": ("unhandled",),
    },
    "command": {
        "audit bronze": ("audit run --until bronze",),
        "audit silver": ("audit run --until silver",),
        "audit gold": ("audit run",),
        "audit all": ("audit run",),
        "audit whatif": ("rules simulate",),
        "kinds": ("rules kinds",),
        "filter-help": ("help filters",),
        "rules release": ("rules resume",),
        "rules kill": ("faults disable",),
        "rules unkill": ("faults enable",),
        "faults kill": ("faults disable",),
        "faults unkill": ("faults enable",),
    },
    "option": {
        "verify --complete": ("--assume-complete",),
        "verify --json": ("-o json",),
        "replay --patience": ("--response-timeout",),
        "explore --drip": ("--one-batch-per-fetch",),
    },
    "method": {
        "release": ("resume",),
    },
}


def renamed(sort: str, old: object, valid: frozenset[str] | list[str]) -> str:
    """Return a hint such as ` (renamed to "permanent")`, with the valid new name; empty if there is none."""
    return next((f' (renamed to "{new}")' for new in RENAMED[sort].get(str(old), ()) if new in valid), "")


def plural(number: int, noun: str) -> str:
    """Return a number of things, such as `0 rules`, `1 rule` or `1,200 batches`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("entry", "query")):
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"


class KproxyError(Exception):
    """Base of all exceptions that kproxy raises on purpose."""


class InputError(KproxyError):
    """Bad input: bytes, files or requests from outside that cannot be worked with."""


class WireError(InputError):
    """Bytes or values that do not follow the protocol's table."""


class DecodeError(WireError):
    """A frame that does not follow its grammar.

    Attributes: api (name or embedded message's name), version, path (dotted field path, `""` when the frame as a
    whole is meant), offset (from the first byte of the frame), expected (what should have been there).
    """

    def __init__(
        self, problem: str, *, api: str = "", version: int = -1, path: str = "", offset: int = 0, expected: str = ""
    ) -> None:
        self.problem, self.api, self.version = problem, api, version
        self.path, self.offset, self.expected = path, offset, expected
        where = f"{api} v{version}" if api else "frame"
        if path:
            where += f" {path}"
        tail = f", expected {expected}" if expected else ""
        super().__init__(f"{where} at byte {offset}: {problem}{tail}")


class EncodeError(WireError):
    """A value that cannot be written; the message names the field path."""


class RecordsError(WireError):
    """Records that cannot be read or made; the message names the batch and the offset of the byte."""


class ProtocolError(InputError):
    """Frame that is not allowed at its place in the stream; `cause` is a short word for metrics, e.g. `correlation`."""

    def __init__(self, cause: str, message: str) -> None:
        self.cause = cause
        super().__init__(message)


class LoginFailed(InputError):
    """SASL authentication that has failed, on either side; the message has no secrets."""


class LoginRefused(LoginFailed):
    """Login that the other side has refused because of the credentials; the message has that side's words."""


class DocumentError(InputError):
    """Mistakes of a rule or config document, as `file:line:column: message` lines in file order."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(mistakes))


class FilterError(InputError):
    """A filter that cannot be read. `at`: where in `text`, in characters from 0 on; the message shows the place."""

    def __init__(self, problem: str, text: str, at: int) -> None:
        self.problem, self.text, self.at = problem, text, at
        super().__init__(f"filter, column {at + 1}: {problem}\n  {text}\n  {' ' * at}^")


class CaptureError(InputError):
    """A malformed or damaged capture file; the message has the offset."""


class NoSuchRule(InputError):
    """Name of a rule that does not exist; the message has the nearest name."""


class RuleInUse(InputError):
    """A rule that cannot be added, changed or removed in this way, because of where it or its namesake comes from."""


class ConfigRefused(InputError):
    """A valid config that cannot be put in force as requested. `code`: `needs_restart`, `no_config_file`,
    `ending`, `fixed_config`, `needs_token`, `other_cluster` or `unknown_cluster`."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class LakeError(InputError):
    """Unusable path, source or table of the pipeline; the message has name and reason."""


class InternalError(KproxyError):
    """A bug, or an environment that kproxy cannot work with."""


class UnusableSetting(InternalError):
    """A setting of the config that is right, and that cannot be used here and now; `where` is its path there."""

    def __init__(self, where: tuple[object, ...], message: str) -> None:
        self.where = where
        super().__init__(message)


class NotEverywhere(InternalError):
    """Rules or a config that a worker process failed to prepare; all workers keep the previous ones."""


class UnknownTable(InternalError):
    """Error for code that asks for a table or a column which is not declared."""
