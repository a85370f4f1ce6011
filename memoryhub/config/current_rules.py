"""What the current store says is a secret, for whatever is about to be kept in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memoryhub import env
from memoryhub.config.project_settings import project_settings
from memoryhub.config.secret_rules import compiled_rules
from memoryhub.core.secrets.sanitize import own_rules_from
from memoryhub.core.stores.routing import current_alias

if TYPE_CHECKING:
    from memoryhub.core.secrets.custom_rules import OwnRules

_TRUE_FOR = 1.0
"""Seconds. A change made by this process counts at once, one of another process after so long at the latest."""
_MOST = 256

_known: dict[tuple[str, str], tuple[float, OwnRules]] = {}


@own_rules_from
def current_rules() -> OwnRules:
    """Return the rules and the allow-list of the current store; none where no store is current.

    Raises:
        Invalid: a setting is not one; the message says where it stands.
    """
    alias = current_alias.get()
    if alias is None:
        return compiled_rules((), ())
    place = env.home_text(), alias
    read_at, rules = _known.get(place, (0.0, None))
    if rules is None or time.monotonic() - read_at > _TRUE_FOR:
        rules = _read()
        if len(_known) >= _MOST:
            _known.clear()
        _known[place] = time.monotonic(), rules
    return rules


def forget_rules() -> None:
    """Read the rules again when they are asked for next: they were changed."""
    _known.clear()


def _read() -> OwnRules:
    settings = project_settings()
    return compiled_rules(tuple(settings.secret_rules), tuple(settings.secret_allow))
