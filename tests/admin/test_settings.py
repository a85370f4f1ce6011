"""The page of a project's settings."""

from __future__ import annotations

import os
from unittest import mock

from memoryhub.config.project_settings import ProjectSettings, project_settings
from memoryhub.core.errors import Invalid
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.admin.base import AdminTestCase, text_of

PAGE = "settings/"


class SettingsPageTests(AdminTestCase):
    def settings_of(self, project: str = "alpha") -> ProjectSettings:
        with self.store(project):
            return project_settings()

    def test_every_setting_has_a_field_with_its_value(self):
        html = self.page(PAGE)
        for name in ProjectSettings.model_fields:
            self.assertIn(f'name="{name}"', html)

    def test_only_what_was_changed_is_kept_and_only_here(self):
        said = self.post(PAGE, **self.unchanged(), review_policy="all", retention_days="never", ranking='{"text": 2}')
        self.assertIn("Changed:", said)
        now = self.settings_of()
        self.assertEqual((now.review_policy, now.retention_days, now.ranking.text), ("all", None, 2))
        self.assertEqual(self.settings_of("beta").review_policy, "off")
        with self.store("alpha"):
            from sessions_app.models import Setting

            self.assertEqual(
                set(Setting.objects.values_list("name", flat=True)), {"review_policy", "retention_days", "ranking"}
            )

    def unchanged(self) -> dict[str, str]:
        """What the form sends for the fields that nobody touched: itself, and what it was."""
        from memoryhub.web.settings_page import SettingsForm

        with self.store("alpha"):
            form = SettingsForm()
        skipped = ("review_policy", "retention_days", "ranking")
        sent = {f"initial-{name}": str(form.initial[name]) for name in form.fields}
        return sent | {name: str(form.initial[name]) for name in form.fields if name not in skipped}

    def test_a_field_that_was_emptied_goes_back_to_its_default(self):
        self.post(PAGE, **{**self.unchanged(), "review_sample_percent": "55"})
        self.assertEqual(self.settings_of().review_sample_percent, 55)
        self.post(PAGE, **{**self.unchanged(), "review_sample_percent": ""})
        self.assertEqual(self.settings_of().review_sample_percent, 10)

    def test_lists_of_words_are_typed_a_line_each(self):
        self.post(PAGE, **{**self.unchanged(), "review_sources": "agent:codex\r\n\r\nrest"})
        self.assertEqual(self.settings_of().review_sources, ["agent:codex", "rest"])
        self.assertIn("agent:codex\nrest</textarea>", self.page(PAGE))

    def test_what_is_wrong_is_said_and_changes_nothing(self):
        for name, typed, sentence in (
            ("review_sample_percent", "500", "review_sample_percent' must be at most 100"),
            ("review_sample_percent", "many", "must be a whole number"),
            ("ranking", "{text: 2}", "This is not valid JSON"),
            ("ranking", "[" * 20_000, "This is nested too deeply"),
            ("review_sample_percent", "[" * 20_000, "This is nested too deeply"),
        ):
            with self.subTest(typed=typed):
                said = text_of(self.post(PAGE, **{**self.unchanged(), name: typed}))
                self.assertIn(sentence, said)
        self.assertEqual(self.settings_of(), ProjectSettings())

    def test_what_the_environment_decides_cannot_be_changed_here(self):
        with mock.patch.dict(os.environ, MEMORY_HUB_TURN_POLICY="strict"):
            self.assertIn("Source: the environment (MEMORY_HUB_TURN_POLICY).", text_of(self.page(PAGE)))
            self.post(PAGE, **{**self.unchanged(), "turn_policy": "auto"})
            self.assertEqual(self.settings_of().turn_policy, "strict")
            with self.store("alpha"), self.assertRaisesRegex(Invalid, "'turn_policy' is set by the environment"):
                change_settings(command=SettingsChange(settings={"turn_policy": "auto"}))
