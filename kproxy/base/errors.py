"""Every exception that kproxy raises on purpose, in one tree.

    KproxyError
    ├── InputError                  bytes, files or requests from outside are bad; the message says what and where
    │   ├── WireError               (kproxy.protocol)
    │   │   ├── DecodeError         a frame that does not follow its grammar
    │   │   ├── EncodeError         a value that does not fit its grammar
    │   │   └── RecordsError        a record batch that cannot be read
    │   ├── ProtocolError           a frame that is not allowed at its place in the stream; closes its connection
    │   ├── LoginFailed             SASL that has failed on either side; the message has no secrets
    │   │   └── LoginRefused        the same because the other side has refused the credentials
    │   ├── DocumentError           a rule or config file with mistakes, all of them at once
    │   ├── FilterError             a filter that cannot be read; says where
    │   ├── CaptureError            a file that is no capture, or a damaged one; says where
    │   ├── NoSuchRule              a rule is named that is not there
    │   ├── RuleInUse               a rule that cannot be changed in this way, because of where it comes from
    │   ├── ConfigRefused           a config that cannot be put in force while kproxy runs, or not in this way
    │   └── LakeError               a path, a source or a table of the pipeline that cannot be used as asked
    └── InternalError               a bug or an environment that cannot be worked with
        ├── UnusableSetting         a setting that is right and cannot be used here and now; says where it stands
        ├── NotEverywhere           rules that some worker process could not take in, so that none has
        └── UnknownTable            code asks for a table or column that is not declared

Messages are lower case, without a full stop, and carry both numbers: what was found and what was expected.
"""


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
    """A rule or config document with mistakes: `mistakes` are `file:line:column: message` lines, in file order."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(mistakes))


class FilterError(InputError):
    """A filter that cannot be read. `at`: where in `text`, in characters from 0 on; the message shows the place."""

    def __init__(self, problem: str, text: str, at: int) -> None:
        self.problem, self.text, self.at = problem, text, at
        super().__init__(f"filter, column {at + 1}: {problem}\n  {text}\n  {' ' * at}^")


class CaptureError(InputError):
    """A file that is no capture, or is damaged; the message has the offset."""


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
    """Error for a path, a source or a table that cannot be used as asked; the message says which and why."""


class InternalError(KproxyError):
    """A bug, or an environment that kproxy cannot work with."""


class UnusableSetting(InternalError):
    """A setting of the config that is right, and that cannot be used here and now; `where` is its path there."""

    def __init__(self, where: tuple[object, ...], message: str) -> None:
        self.where = where
        super().__init__(message)


class NotEverywhere(InternalError):
    """Rules, or a config, that some worker process could not take in, so that all go on with what was in force."""


class UnknownTable(InternalError):
    """Error for code that asks for a table or a column which is not declared."""
