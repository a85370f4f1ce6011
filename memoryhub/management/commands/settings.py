from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.management.base import ProjectCommand

_ROW = "{:<26} {:<28} {}"


class Command(ProjectCommand):
    help = "List a project's settings and their sources; or show or change one."
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
                from sessions_app.schemas import SettingsChange
                from sessions_app.services.profile import change_settings

                new = None if options["default"] else _read_value(value)
                change_settings(command=SettingsChange(settings={name: new}))
            self._show(name)

    def _show(self, name: str | None) -> None:
        from memoryhub.config.current_settings import project_settings, settings_decided_by
        from memoryhub.config.project_settings import check_settings

        if name is not None:
            check_settings({name: None})
        decided_by = settings_decided_by()
        current = {}
        lines = [_ROW.format("SETTING", "VALUE", "DECIDED BY")]
        for setting, value in project_settings().model_dump(mode="json").items():
            if name in (None, setting):
                by = decided_by.get(setting, "the default")
                current[setting] = {"value": value, "decided_by": by}
                text = "never" if value is None else value
                if not isinstance(text, str):
                    text = json.dumps(value, ensure_ascii=False)
                lines.append(flat(_ROW.format(setting, text, by)))
        self.answer(current, lines)


# JSON, or else the word itself
def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text
