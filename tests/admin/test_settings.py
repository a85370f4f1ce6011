"""The page of a project's settings."""

from __future__ import annotations

import os
import re
from unittest import mock

from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import ProjectSettings, Topic, setting_info
from memoryhub.core.errors import Invalid
from sessions_app.models import Setting
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.admin.base import AdminTestCase, text_of

PAGE = "settings/"


class SettingsPageTests(AdminTestCase):
    def settings_of(self, project: str = "alpha") -> ProjectSettings:
        with self.store(project):
            return project_settings()

    def test_every_setting_has_a_field_or_a_page_with_fields(self):
        html = self.page(PAGE)
        for name in ProjectSettings.model_fields:
            self.assert_shows(html, f'id="setting-{name}"')
            self.assertEqual(f'name="{name}-' in html, setting_info(name).group is not Topic.SECRETS, name)

    def test_only_what_was_changed_is_kept_and_only_here(self):
        typed = {"review_policy-value": "all", "retention_days-value": "never", "ranking-text": "2"}
        page = self.save(**typed)
        self.assert_shows(page, "Changed: Writes to review, Delete captured events after, Ranking.")
        now = self.settings_of()
        self.assertEqual((now.review_policy, now.retention_days, now.ranking.text), ("all", None, 2))
        self.assertEqual(self.settings_of("beta").review_policy, "off")
        with self.store("alpha"):
            names = set(Setting.objects.values_list("name", flat=True))
        self.assertEqual(names, {"review_policy", "retention_days", "ranking"})
        self.assert_shows(self.save(), "No changes to save.")

    def fields(self) -> dict[str, str]:
        """What the form sends while nobody touches it."""
        html = self.page(PAGE)
        main = html[html.index('name="before"') - 60 :]
        fields = dict(re.findall(r'<input type="(?:text|hidden)" name="([^"]+)" value="([^"]*)"', main))
        fields["before"] = re.search(r'name="before" value="(.*?)">', main)[1]  # type: ignore[index]
        fields |= dict(re.findall(r'<input type="radio" name="([^"]+)" value="([^"]*)"[^>]* checked', main))
        fields |= dict(re.findall(r'<select name="([^"]+)".*?<option value="([^"]*)" selected', main, re.DOTALL))
        return fields | dict(re.findall(r'<textarea name="([^"]+)"[^>]*>\n(.*?)</', main, re.DOTALL))

    def save(self, **fields: str) -> str:
        return text_of(self.post(PAGE, **{**self.fields(), **fields}))

    def test_a_field_that_was_emptied_or_reset_goes_back_to_its_default_and_the_others_stay(self):
        for reset in ({"review_sample_percent-value": ""}, {"reset": "review_sample_percent"}):
            self.save(**{"review_sample_percent-value": "55"})
            self.assert_shows(text_of(self.page(PAGE)), "Set for this project Default: 10 percent.")
            self.assertEqual(self.settings_of().review_sample_percent, 55)
            html = self.post(PAGE, **{**self.fields(), **reset, "session_idle_hours-value": "7"})
            self.assertRegex(html, r'name="session_idle_hours-value" value="7"')
            self.assertEqual(self.settings_of().review_sample_percent, 10)
        self.assert_shows(html, "Reset: Size of the sample is 10 percent.")

    def test_a_page_that_is_open_for_long_does_not_undo_what_others_change(self):
        before = self.fields()
        self.save(**{"session_idle_hours-value": "7"})
        self.post(PAGE, **{**before, "review_policy-value": "all"})
        now = self.settings_of()
        self.assertEqual((now.session_idle_hours, now.review_policy), (7, "all"))

    def test_lists_and_rows_have_fields(self):
        rows = {"review_after-0-name": "decision", "review_after-0-value": "90"}
        rule = {"retention-0-what": "captured", "retention-0-after_days": "never"}
        self.save(**rows, **rule, **{"review_sources-value": "agent:codex\r\n\r\nrest"})
        now = self.settings_of()
        self.assertEqual(now.review_sources, ["agent:codex", "rest"])
        self.assertEqual(now.review_after, {"decision": 90})
        self.assertEqual([rule.sentence() for rule in now.retention], ["captured never"])
        self.assert_shows(self.page(PAGE), "agent:codex\nrest</textarea>")
        self.save(**{"review_after-0-name": "", "review_after-0-value": ""})
        self.assertEqual(self.settings_of().review_after, {})

    def test_what_is_wrong_is_said_beside_its_field_and_changes_nothing(self):
        for typed, sentence in (
            ({"review_sample_percent-value": "500"}, "Size of the sample : Must be at most 100, not 500."),
            ({"review_sample_percent-value": "many"}, "Must be a whole number"),
            ({"review_sample_percent-value": "[" * 20_000}, "Must be a whole number"),
            ({"ranking-text": "-1"}, "Text: must be at least 0.0, not -1."),
            ({"retention-0-after_days": "3"}, "Row 1, what: "),
            ({"review_after-0-name": "decision"}, "Decision: must be a whole number."),
            ({"review_policy-value": "some"}, "Select one of the choices."),
            ({"before": "["}, "No changes to save."),
        ):
            with self.subTest(typed=typed):
                self.assertIn(sentence, self.save(**{"session_idle_hours-value": "12", **typed}))
        self.assertEqual(self.settings_of(), ProjectSettings())

    def test_what_the_environment_decides_cannot_be_changed_here(self):
        self.save(**{"turn_policy-value": "strict"})
        with mock.patch.dict(os.environ, MEMORY_HUB_TURN_POLICY="auto"):
            text = text_of(self.page(PAGE))
            self.assert_shows(
                text,
                "Fixed Set by the environment (MEMORY_HUB_TURN_POLICY); change it there.",
                "This project’s own value, Strict: every write needs a turn's token, has no effect.",
            )
            self.post(PAGE, **{"turn_policy-value": "strict"})
            self.assertEqual(self.settings_of().turn_policy, "auto")
            with self.store("alpha"), self.assertRaisesRegex(Invalid, "'turn_policy' is set by the environment"):
                change_settings(command=SettingsChange(settings={"turn_policy": "auto"}))
