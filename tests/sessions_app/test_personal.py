"""Masking personal data: off by default, by type, at every interface, and in past events."""

from __future__ import annotations

import os
from io import StringIO
from typing import Any, get_args
from unittest import mock

from django.core.management import call_command

from benchmarks.quality.secrets.personal_forms import personal_samples
from governance.redaction.schemas import RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.config import current_rules
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.config.secret_rules import PersonalType, compiled_rules
from memoryhub.core import log
from memoryhub.core.errors import Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.secrets.personal import Personal
from memoryhub.core.secrets.sanitize import sanitize_text, use_rules
from sessions_app.schemas import SettingsChange
from sessions_app.schemas.work import Sanitise
from sessions_app.services.profile import change_settings, try_rules
from tests.admin.base import AdminTestCase
from tests.api.client import RestTestCase
from tests.support import HubTestCase

TEXT = "Ann, ann@example.org, +49 30 12345678, 4111 1111 1111 1111, DE89370400440532013000, 529.982.247-25"
MASKED = "Ann, [REDACTED:email], [REDACTED:phone], [REDACTED:card], [REDACTED:iban], [REDACTED:national-id]"
ALL = tuple(map(str, Personal))


def masked(text: str, *types: str) -> str:
    with use_rules(compiled_rules((), (), types)):
        return sanitize_text(text)[0]


class PersonalDataTests(HubTestCase):
    def change(self, **settings: Any) -> None:
        with self.store("alpha"):
            change_settings(command=SettingsChange(settings=settings))

    def kept(self, text: str = TEXT, project: str = "alpha") -> str:
        with self.store(project):
            return sanitize_text(text)[0]

    def test_it_is_kept_by_default_and_masked_by_type(self):
        self.assertEqual(ProjectSettings().mask_personal, [])
        self.assertEqual(sanitize_text(TEXT)[0], TEXT)
        self.assertEqual(masked(TEXT, *ALL), MASKED)
        self.assertEqual(masked("ann@example.org +49 30 12345678", "phone"), "ann@example.org [REDACTED:phone]")
        self.assertEqual(set(ALL), set(get_args(PersonalType)))
        self.assertEqual(masked(MASKED, *ALL), MASKED)

    def test_numbers_without_valid_check_digits_stay(self):
        for text in (
            "4111 1111 1111 1112",
            "DE89370400440532013001",
            "529.982.247-26",
            "12345678A",
            "git@github.com:a/b.git",
            "@@ -100,20 +100,20 @@",
            "2026-11-23 12:00:01",
            "1700000000000",
        ):
            self.assertEqual(masked(text, *ALL), text)

    def test_generated_data_is_found_and_look_alikes_are_not(self):
        samples = list(personal_samples())
        found = [sample for sample in samples if sample.secret and sample.secret not in masked(sample.text, *ALL)]
        wrong = [sample.text for sample in samples if not sample.secret and masked(sample.text, *ALL) != sample.text]
        self.assertGreaterEqual(len(found) / sum(bool(sample.secret) for sample in samples), 0.98)
        self.assertEqual(wrong, [])

    def test_a_project_asks_for_it_and_another_does_not(self):
        self.change(mask_personal=["email", "card"])
        self.assertRegex(
            self.kept(), r"^Ann, \[REDACTED:email:\w{4}\], \+49 30 12345678, \[REDACTED:card:\w{4}\], DE89"
        )
        self.assertEqual(self.kept(project="beta"), TEXT)
        with self.assertRaisesRegex(Invalid, "mask_personal"):
            self.change(mask_personal=["names"])
        self.assertIn("REDACTED:email", self.kept())

    def test_the_environment_and_the_configuration_file_ask_for_it(self):
        with mock.patch.dict(os.environ, MEMORY_HUB_MASK_PERSONAL="iban, national_id"):
            current_rules.forget_rules()
            self.assertEqual(self.kept().count("REDACTED"), 2)
        (self.home / "config.toml").write_text('mask_personal = ["email"]\n')
        current_rules.forget_rules()
        self.assertEqual(self.kept().count("REDACTED"), 1)
        current_rules.forget_rules()

    def test_the_command_changes_it(self):
        self.change(mask_personal=["email"])
        call_command("settings", "mask_personal", '["phone"]', project="alpha", stdout=StringIO())
        self.assertEqual(self.kept().count("[REDACTED:phone"), 1)

    def test_it_is_tried_with_the_name_of_the_rule(self):
        with self.store("alpha"):
            tried = try_rules(command=Sanitise(text=TEXT, mask_personal=["card"]))
        self.assertEqual([found.rule for found in tried.found], ["personal-card"])
        self.assertEqual(self.kept(), TEXT)

    def test_what_was_kept_before_is_redacted_by_todays_rules(self):
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="Customer", content=TEXT))
        self.change(mask_personal=["email", "iban"])
        with self.store("alpha"):
            shown = preview_redaction(command=RedactionSelect(rules=True))
            self.assertEqual(shown.events, 1)
            redact(command=RedactionRun(rules=True, confirm_token=shown.confirm_token, reason="asked for"))
            stored = " ".join(RawEvent.objects.values_list("payload_json", flat=True))
            self.assertNotIn("ann@example.org", stored)
            self.assertIn("+49 30 12345678", stored)
            self.assertTrue(log.rebuild().identical)

    def test_personal_data_is_not_remembered(self):
        self.change(mask_personal=["email"])
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="Customer", content="ann.1x@example.org"))
        self.change(mask_personal=[])
        self.assertEqual(self.kept("ann.1x@example.org"), "ann.1x@example.org")


class OverRestTests(RestTestCase):
    def test_a_text_is_checked_by_type(self):
        answer = self.call("POST", "projects/alpha/sanitise", {"text": TEXT, "mask_personal": ["email"]})
        self.assertEqual([found["type"] for found in answer.json()["found"]], ["email"])


class OnThePageTests(AdminTestCase):
    def test_types_are_chosen_and_saved(self):
        fields = {"rule-TOTAL_FORMS": "0", "rule-INITIAL_FORMS": "0", "text": "", "allow": ""}
        self.assertIn("were saved", self.post("secrets/", **fields, personal="email", do="save"))
        self.assertIn(
            'value="email" id="id_personal_0" checked', self.page("secrets/", part="rules").replace("\n", " ")
        )
        self.assertNotIn("ann@example.org", self.memory(self.write("A", TEXT)).content)
