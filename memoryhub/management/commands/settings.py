from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.management.base import CommandGroup, ProjectCommand

_ROW = "{:<26} {:<28} {}"
_DEFAULT = "the default"


class Command(ProjectCommand):
    help = "List a project's settings and their sources; or show or change one."
    group = CommandGroup.CONTENT
    is_slim = True
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", nargs="?", help="a setting, such as search_mode")
        parser.add_argument("value", nargs="?", help="new value; lists and objects as JSON")
        parser.add_argument("--default", action="store_true", help="reset the setting to its default")

    def values(self) -> dict[str, Iterable[str]]:
        from memoryhub.config.project_settings import ProjectSettings

        return {"name": ProjectSettings.model_fields}

    def handle(self, *args: Any, **options: Any) -> None:
        name, value = options["name"], options["value"]
        if options["default"] and (name is None or value is not None):
            raise Invalid("--default needs the name of a setting and no value")
        with self.store(options):
            if value is not None or options["default"]:
                self._change(name, None if options["default"] else _read_value(value))
            self._show(name)

    def _change(self, name: str, value: Any) -> None:
        from sessions_app.schemas import SettingsChange
        from sessions_app.services.profile import change_settings

        change_settings(command=SettingsChange(settings={name: value}))

    def _show(self, name: str | None) -> None:
        from memoryhub.config.current_settings import project_settings, settings_decided_by
        from memoryhub.config.project_settings import check_settings

        if name is not None:
            check_settings({name: None})
        values = project_settings().model_dump(mode="json")
        by = settings_decided_by()
        current = {}
        for setting, value in values.items():
            if name in (None, setting):
                current[setting] = {"value": value, "decided_by": by.get(setting, _DEFAULT)}
        rows = [(setting, _value_text(entry["value"]), entry["decided_by"]) for setting, entry in current.items()]
        self.answer(current, [flat(_ROW.format(*row)) for row in [("SETTING", "VALUE", "DECIDED BY"), *rows]])


# JSON, or else the word itself
def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text


def _value_text(value: Any) -> str:
    if value is None:
        return "never"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
