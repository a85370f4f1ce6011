"""Show a project's settings and who decides each, or change one."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.management.base import ProjectCommand

_ROW = "{:<26} {:<28} {}"
_DEFAULT = "the default"


class Command(ProjectCommand):
    """``memory-hub settings``."""

    help = "List a project's settings with what decides each; or show one, or change it for the project."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the setting and its new value."""
        super().add_arguments(parser)
        parser.add_argument("name", nargs="?", help="one setting, such as search_mode")
        parser.add_argument("value", nargs="?", help="its new value; lists and objects as JSON")
        parser.add_argument("--default", action="store_true", help="take it back to its default")
        parser.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """List, show or change."""
        name, value = options["name"], options["value"]
        if options["default"] and (name is None or value is not None):
            raise Invalid("--default takes the name of one setting, and no value")
        with self.store(options):
            if value is not None or options["default"]:
                self._change(name, None if options["default"] else _read(value))
            self._show(name, as_json=options["json"])

    def _change(self, name: str, value: Any) -> None:
        from sessions_app.schemas import SettingsChange
        from sessions_app.services.profile import change_settings

        change_settings(command=SettingsChange(settings={name: value}))

    def _show(self, name: str | None, *, as_json: bool) -> None:
        from memoryhub.config.project_settings import check_settings, project_settings, settings_decided_by

        if name is not None:
            check_settings({name: None})
        values, by = project_settings().model_dump(mode="json"), settings_decided_by()
        shown = {
            each: {"value": value, "decided_by": by.get(each, _DEFAULT)}
            for each, value in values.items()
            if name in (None, each)
        }
        if as_json:
            self.stdout.write(json.dumps(shown, ensure_ascii=False, indent=1))
            return
        self.stdout.write(_ROW.format("SETTING", "VALUE", "DECIDED BY"))
        for each, one in shown.items():
            self.stdout.write(flat(_ROW.format(each, _text(one["value"]), one["decided_by"])))


def _read(text: str) -> Any:
    """Return a number, a truth value or what has parts as such, and a word as it is."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "never" if value is None else json.dumps(value, ensure_ascii=False)
