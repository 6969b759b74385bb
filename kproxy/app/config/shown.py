"""Config as it may be shown: without its secrets, and with a version by which two can be told apart."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel, SecretStr

from kproxy.record.audit.config import KafkaTopic

from .document import Config

HIDDEN = "***"
"""Stands for a secret."""
DIGEST = 6
"""Bytes of the version, which is shown as 12 characters."""


def shown(config: Config) -> dict[str, Any]:
    """Return the config as plain values of JSON: what was not written has its default, what is off is left out."""
    plain = _shown(config)
    assert isinstance(plain, dict), "a model has fields"
    return plain


def version_of(config: Config) -> str:
    """Return a version that is the same for two configs that say the same. Secrets do not count: whoever can read a
    version could try out words otherwise."""
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
