"""The current store's custom rules for secrets, for everything that is about to be stored in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memoryhub import env
from memoryhub.config.current_settings import project_settings
from memoryhub.config.secret_rules import compiled_rules
from memoryhub.core.secrets.sanitize import custom_rules_from
from memoryhub.core.stores.routing import current_alias

if TYPE_CHECKING:
    from memoryhub.core.secrets.custom_rules import CustomRules

# Seconds. A change by this process applies at once, one by another process within this time.
_CACHE_SECONDS = 1.0
_MAX_CACHED = 256

_cache: dict[tuple[str, str], tuple[float, CustomRules]] = {}


@custom_rules_from
def current_rules() -> CustomRules:
    """Return the rules and the allowlist of the current store; empty if no store is current."""
    alias = current_alias.get()
    if alias is None:
        return compiled_rules((), ())
    place = env.home_text(), alias
    read_at, rules = _cache.get(place, (0.0, None))
    if rules is None or time.monotonic() - read_at > _CACHE_SECONDS:
        rules = _read()
        if len(_cache) >= _MAX_CACHED:
            _cache.clear()
        _cache[place] = time.monotonic(), rules
    return rules


def forget_rules() -> None:
    """Read the rules again at their next use, after a change."""
    _cache.clear()


def _read() -> CustomRules:
    settings = project_settings()
    return compiled_rules(tuple(settings.secret_rules), tuple(settings.secret_allow), tuple(settings.mask_personal))
