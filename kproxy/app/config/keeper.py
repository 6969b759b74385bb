"""Config for display: without secrets, and with a version to compare."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import trio
from pydantic import BaseModel, SecretStr
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import ConfigRefused, DocumentError, KproxyError, NotEverywhere, UnusableSetting
from kproxy.base.named_file import PathGuard, reason
from kproxy.record.audit.config import KafkaTopic
from kproxy.rules.document.read import Document
from kproxy.rules.document.store import RuleStore, StoreChange
from kproxy.rules.rule_set import RuleSet
from kproxy.rules.values.source import Source, raise_mistakes
from kproxy.runtime.rule_files import INTERVAL, SETTLE, RuleFiles, file_version, read_versions
from kproxy.runtime.rule_keeper import DOCUMENTS, MOST_LOGGED, RuleKeeper, TurnCheck, do_nothing

from .changes import MOST, ConfigStep, Origin, changed_places, steps, with_parts_of_start
from .document import Config, rule_paths, usable_config

if TYPE_CHECKING:
    from kproxy.runtime.network import ConfigChange

HIDDEN = "***"
"""Placeholder of a secret."""
DIGEST = 6
"""Bytes of the version, which is shown as 12 characters."""


def shown(config: Config) -> dict[str, Any]:
    """Return the config as JSON values, with defaults filled in and disabled parts omitted."""
    plain = _shown(config)
    assert isinstance(plain, dict), "a model has fields"
    return plain


def version_of(config: Config) -> str:
    """Return a version that is equal for equal configs. Secrets are excluded: otherwise a reader of versions could
    brute-force them."""
    text = json.dumps(shown(config), sort_keys=True)
    return blake2b(text.encode(), digest_size=DIGEST).hexdigest()


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, BaseModel):
        fields = {info.alias or name: getattr(value, name) for name, info in type(value).model_fields.items()}
        found = {name: _shown(one) for name, one in fields.items() if one is not None}
        if isinstance(value, KafkaTopic):  # librdkafka knows many settings that hold a secret
            found["options"] = dict.fromkeys(value.options, HIDDEN)
        return found
    if isinstance(value, dict):
        return {str(name): _shown(one) for name, one in value.items()}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | frozenset | set) or type(value) is tuple:
        return [_shown(one) for one in value]
    return str(value)


ConfigOrigin = Literal["file", "api"]
_PLACED = re.compile(r"(:\d+:\d+): .*", re.DOTALL)
"""Column and message of a `file:line:column: message` line."""


class Reconfigured(Protocol):
    """Process with a config that changes. `prepare` makes the change to another one, in a thread; `put_in_force` cannot
    fail."""

    def prepare(self, config: Config) -> ConfigChange: ...
    def put_in_force(self, change: Any, rules: RuleSet) -> None: ...
    @property
    def ending(self) -> bool: ...


# Config at work: a new one is checked as a whole, together with the rules, and put in force completely or not at all.
#
# Strategy. A document is read and checked as at a start, together with its rule files and the rules from the API: a
# rule that selects a removed listener is a mistake at the rule's place. Everything that can fail comes next, without
# stopping traffic: certificates are read, ports are opened (`network.py`). Finally rules and config are put in force
# together, in one step of the loop. Fields that need a restart are reported; the change is refused unless the request
# accepts that they keep their values.
class PlacedStep(NamedTuple):
    """Step to another config, with its place in the document (`file:line:column`, empty if not in the document)."""

    step: ConfigStep
    at: str


class CheckedConfig(NamedTuple):
    """Valid config, with the steps to it. `document` is as written; `config` is the result if all fields that need a
    restart keep their values, and `version` is the version of `config`. `not_in_file`: places where the config in force
    differs from its file."""

    source: Source
    document: Config
    config: Config
    version: str
    steps: list[PlacedStep]
    not_in_file: list[str]

    @property
    def restarts(self) -> list[str]:
        return [one.step.name for one in self.steps if one.step.kind == "restart"]


class ConfigKeeper:
    """Keeper of the config in force. `version` is its version, `applied` and `rejected` count the attempts to change
    it."""

    def __init__(
        self, config: Config, origin: Origin, process: Reconfigured, rules: RuleKeeper, files: RuleFiles,
        log: FilteringBoundLogger,
    ) -> None:  # fmt: skip
        self.config, self.origin, self.process, self.rules, self.files = config, origin, process, rules, files
        self.log = log
        self.version = version_of(config)
        self.came_by: ConfigOrigin = "file"
        self.applied = self.rejected = 0
        self.changing = trio.Lock()
        self.seen = None if origin.path is None else file_version(origin.path)
        """Version of the config's file that was read last."""

    @property
    def file(self) -> str | None:
        """Return the name of the file that the config was read from at the start; None: from flags."""
        return None if self.origin.path is None else str(self.origin.path)

    async def check(self, source: Source | None = None) -> CheckedConfig:
        """Check a document, or the config's own file, and return the steps to it; nothing changes. Raises
        DocumentError, and ConfigRefused if the config has no file."""
        return (await self._checked(source))[0]

    async def apply(
        self, source: Source | None = None, *, came_by: ConfigOrigin = "api", except_restart: bool = False,
        allow_cluster_change: bool = False, check: TurnCheck = do_nothing,
    ) -> CheckedConfig:  # fmt: skip
        """Put a document, or the config's own file, in force, completely or not at all. `except_restart`: settings that
        need a restart keep their values. `allow_cluster_change`: listeners may lead to another cluster. `check` is
        called after changes in progress; it may refuse this one. Raises DocumentError, ConfigRefused, NotEverywhere and
        errors of `check`."""
        async with self.changing:
            check()
            try:
                return await self._apply(source, came_by, except_restart, allow_cluster_change)
            except KproxyError as error:
                self._reject(error, came_by)
                raise

    async def reload(self) -> bool:
        """Apply the config's own file if it differs from the config in force; log fields that need a restart. Return
        True if its rules were read as well."""
        if self.origin.path is None:
            return False
        self.seen = await trio.to_thread.run_sync(file_version, self.origin.path)
        try:
            checked, _ = await self._checked(None)
        except KproxyError as error:
            self._reject(error, "file")
            return False
        if checked.restarts:
            restarts = [one.step for one in checked.steps if one.step.kind == "restart"]
            fields = [field for step in restarts for field in step.fields or (step.name,)]
            self.log.warning(
                "config has changed, a restart is needed for this", config=self.file, changed=fields[:MOST]
            )
        if len(checked.steps) == len(checked.restarts):
            return False
        try:
            await self.apply(came_by="file", except_restart=True)
        except NotEverywhere:  # the file itself is not wrong: the next poll reads it again
            self.seen = None
            return False
        except KproxyError:
            return False
        return True

    async def watch(self) -> None:
        """Apply the config's own file after each change, until cancelled; returns at once if watching is off."""
        path = self.origin.path
        while self.origin.watched and path is not None:
            await trio.sleep(INTERVAL)
            version = await trio.to_thread.run_sync(file_version, path)
            if version != self.seen and version is not None:
                await trio.sleep(SETTLE)
                if await trio.to_thread.run_sync(file_version, path) == version:  # otherwise it is still being written
                    await self.reload()

    @staticmethod
    def describe(config: Config) -> dict[str, Any]:
        """Return the config with its defaults and without secrets."""
        return shown(config)

    def not_in_file(self) -> list[str]:
        """Return the places where the config in force, set over the API, differs from the config's own file."""
        if self.came_by == "file" or self.origin.path is None:
            return []
        try:
            return changed_places(
                with_parts_of_start(self._read(Source.open(self.origin.path)), self.config), self.config
            )
        except DocumentError:
            return ["the file has errors"]

    # ---- inside

    async def _checked(self, source: Source | None) -> tuple[CheckedConfig, list[Document]]:
        """Return a document's config, and the documents of its rules. Raises DocumentError and ConfigRefused."""
        trial = self.rules.store.trial()
        return await trio.to_thread.run_sync(self._check_all, source, trial, limiter=DOCUMENTS)

    def _check_all(self, source: Source | None, trial: RuleStore) -> tuple[CheckedConfig, list[Document]]:
        path = self.origin.path
        if source is None:
            if path is None:
                text = "kproxy was started with flags, and has no config file to read again"
                raise ConfigRefused("no_config_file", text)
            source, guard = Source.open(path), None
        else:
            guard = self.files.guard()
        document = self._read(source, guard)
        config = with_parts_of_start(document, self.config)
        placed = [
            PlacedStep(step, source.position(step.path) if step.path else "") for step in steps(self.config, document)
        ]
        documents = self._rules_of(source, config, from_file=guard is None)
        trial.use(config.places(), documents, monotonic())
        return CheckedConfig(source, document, config, version_of(config), placed, self.not_in_file()), documents

    def _rules_of(self, source: Source, config: Config, *, from_file: bool) -> list[Document]:
        """Return the documents of the rules of a config. `from_file`: the config is from kproxy's own file, so its
        rules may run code. Raises DocumentError for a folder that cannot be listed."""
        try:
            return self.files.read(config.rules, config.rules if from_file else ())
        except OSError as error:
            source.note(("rules",), f"the rule files cannot be read: {reason(error)}")
            raise DocumentError(source.lines()) from error

    def _read(self, source: Source, guard: PathGuard | None = None) -> Config:
        """Return the config of a document, with the settings of flags applied. `guard`: it came over the admin API.
        Raises DocumentError."""
        folder = Path() if self.origin.path is None else self.origin.path.parent
        config = usable_config(source, folder, guard)
        rule_paths(source, folder, config)
        raise_mistakes([source])
        return self.origin.adjust(config)

    async def _apply(
        self, source: Source | None, came_by: ConfigOrigin, except_restart: bool, allow_cluster_change: bool
    ) -> CheckedConfig:
        checked, _ = await self._checked(source)
        if checked.restarts and not except_restart:
            text = f"a restart is needed for {', '.join(checked.restarts)}; --except-restart applies the rest"
            raise ConfigRefused("needs_restart", text)
        if self.process.ending:
            raise ConfigRefused("ending", "kproxy is going to end, and takes no other config")
        seen = await trio.to_thread.run_sync(read_versions, checked.config.rules)
        from_file = source is None
        documents = await trio.to_thread.run_sync(
            lambda: self._rules_of(checked.source, checked.config, from_file=from_file), limiter=DOCUMENTS
        )
        change = await self._opened(checked, allow_cluster_change)

        def operation(store: RuleStore, now: float) -> StoreChange:
            return store.use(checked.config.places(), documents, now)

        def commit(rules: RuleSet) -> None:
            self.process.put_in_force(change, rules)
            self._has_applied(checked, came_by)
            for text in change.moved[:MOST]:
                self.log.warning("clients are moved to another cluster", listener=text)
            self.files.paths, self.files.seen = checked.config.rules, seen
            if from_file:
                self.files.allow_code(checked.config.rules)

        try:
            async with self.files.reading:
                await self.rules.load_with(operation, commit, lambda: self.process.ending, change.report)
        except UnusableSetting as error:
            raise self._misplaced(checked, error) from error
        finally:
            change.undo()  # after this, the change cannot be undone
        return checked

    async def _opened(self, checked: CheckedConfig, allow_cluster_change: bool) -> ConfigChange:
        """Return the change, after all steps that can fail. Raises DocumentError, and ConfigRefused for listeners that
        would lead to another cluster."""
        try:
            change = await trio.to_thread.run_sync(self.process.prepare, checked.config)
            await change.open(allow_cluster_change=allow_cluster_change)
        except UnusableSetting as error:
            raise self._misplaced(checked, error) from error
        return change

    def _misplaced(self, checked: CheckedConfig, error: UnusableSetting) -> DocumentError:
        """Return the error for a setting that cannot be used here and now, at its place in the document. All settings
        are valid, and `GET /api/config` shows them."""
        line, column = checked.source.place(error.where)
        checked.source.note_at(line, column, str(error), quotes_variables=True)
        return DocumentError(checked.source.lines())

    def _has_applied(self, checked: CheckedConfig, came_by: ConfigOrigin) -> None:
        before, self.config, self.came_by = self.version, checked.config, came_by
        self.version = checked.version
        self.applied += 1
        names = [f"{one.step.name} {one.step.kind}" for one in checked.steps if one.step.kind != "restart"]
        self.log.info("config applied", origin=came_by, version=self.version, before=before, steps=names[:MOST],
                      count=len(names))  # fmt: skip

    def _reject(self, error: KproxyError, came_by: ConfigOrigin) -> None:
        self.rejected += 1
        mistakes = error.mistakes if isinstance(error, DocumentError) else [str(error)]
        for mistake in mistakes[:MOST_LOGGED]:
            if came_by == "api" and isinstance(error, DocumentError):
                # The message may quote a secret that was written at a wrong place. Its sender has it in the response.
                mistake = _PLACED.sub(r"\1", mistake, count=1)
            self.log.error("config rejected", origin=came_by, mistake=mistake)
        self.log.error("config rejected, the one in force stays", origin=came_by, mistakes=len(mistakes),
                       version=self.version)  # fmt: skip
