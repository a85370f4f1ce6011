"""YAML that someone else wrote, without aliases."""

from __future__ import annotations

from typing import Any

import yaml


# Merged aliases of a few lines are billions of keys for PyYAML before 6.0.4
class _PlainLoader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*name), and none is allowed here")
        return super().compose_node(parent, index)


def load_yaml(text: str) -> Any:
    """Return the data of a text.

    Raises:
        yaml.YAMLError: it is not YAML, or has aliases.
        ValueError: a date or a number is none.
        RecursionError: it is nested too deeply.
    """
    return yaml.load(text, _PlainLoader)  # noqa: S506  (a SafeLoader)
