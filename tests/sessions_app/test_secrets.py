"""A project's own rules for secrets, its allow-list, its tags, and masking of personal data."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any, get_args
from unittest import mock

from django.core.management import CommandError, call_command

from benchmarks.quality.secrets.personal_forms import personal_samples
from governance.redaction.copies import look_through
from governance.redaction.schemas import RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories.schemas import MemoryTouch, MemoryUpdate, MemoryWrite
from memories.services import delete_memory, restore_memory, update_memory, write_memory
from memoryhub.config import current_settings
from memoryhub.config.project_settings import PersonalType, ProjectSettings, compiled_rules
from memoryhub.core.errors import Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.secrets import context, rule
from memoryhub.core.secrets.catalogue import Personal
from memoryhub.core.secrets.context import use_rules
from memoryhub.core.secrets.sanitize import sanitize, sanitize_text
from sessions_app.models import Session, Setting
from sessions_app.schemas import Sanitise, Sanitised, SessionEnd, SessionStart, SettingsChange
from sessions_app.services import end_session, start_session
from sessions_app.services.profile import change_settings, try_rules
from tests.admin.base import AdminTestCase
from tests.api.client import RestTestCase
from tests.core.test_sanitize import TOKENS
from tests.support import HubTestCase

TOKEN = TOKENS["npm-token"]
SECRET = "kX3vR9pLm2Qw7TzB4nYs8HcJ5dFg"
BADGE = {"id": "badge", "pattern": "ACME-([0-9]{6})", "description": "The number of a badge"}


class SecretsTestCase(HubTestCase):
    def change(self, project: str = "alpha", **settings: Any) -> None:
        with self.store(project):
            change_settings(command=SettingsChange(settings=settings))

    def kept(self, text: str, project: str = "alpha") -> str:
        with self.store(project):
            return sanitize_text(text)[0]

    def tried(self, text: str, **fields: Any) -> Sanitised:
        with self.store("alpha"):
            return try_rules(command=Sanitise(text=text, **fields))

    def count(self, model: Any) -> int:
        with self.store("alpha"):
            return int(model.objects.count())

    @contextmanager
    def environment(self, **variables: str) -> Iterator[None]:
        with mock.patch.dict(os.environ, variables):
            context.forget_rules()
            yield
        context.forget_rules()


class TagTests(SecretsTestCase):
    def test_a_secret_has_one_tag_in_a_store_and_another_elsewhere(self):
        alpha, again = re.findall(r"\[REDACTED:npm-token:[0-9a-f]{4}\]", self.kept(f"{TOKEN} and {TOKEN}"))
        self.assertEqual(alpha, again)
        self.assertNotEqual(alpha, self.kept(TOKEN, "beta"))
        self.assertNotEqual(alpha, self.kept(TOKEN[:-1] + "Z"))
        self.assertEqual(sanitize_text(TOKEN)[0], "[REDACTED:npm-token]")
        key = self.home / "redaction.key"
        self.assertEqual(key.stat().st_mode & 0o777, 0o600)
        for file in self.home.glob("projects/*/*"):
            self.assertNotIn(key.read_bytes().strip(), file.read_bytes())


class RememberedTests(SecretsTestCase):
    def write(self, text: str, project: str = "alpha") -> str:
        with self.store(project):
            write_memory(command=MemoryWrite(title=f"Note of {len(text)}", content=text))
            return str(RawEvent.objects.latest("position").payload_json)

    def test_a_secret_is_masked_bare_in_later_events_of_its_project(self):
        self.write(f"API key - {SECRET}")
        later = self.write(f"I called /v1/{SECRET}/items, and {SECRET}.")
        self.assertEqual(later.count("[REDACTED:secret:"), 2)
        self.assertIn(SECRET, self.write(SECRET, "beta"))
        slashed = "wJ4lrXUtnF3MI/K7MDENGbPxRfiCYz9Q"
        self.write(f"api_key={slashed}")
        self.assertNotIn(slashed, self.kept(f"?x={slashed}&y=1"))
        with self.store("alpha"):
            self.assert_rebuilds()

    def test_the_store_keeps_a_keyed_digest_and_another_process_reads_it(self):
        self.write(f"password: {SECRET}")
        for file in self.home.glob("projects/*/*"):
            self.assertNotIn(SECRET.encode(), file.read_bytes())
        context.forget()
        self.assertIn("[REDACTED:secret:", self.kept(f"see {SECRET}"))
        with self.store("alpha"), self.assertRaisesRegex(Invalid, "idempotency_key"):
            write_memory(command=MemoryWrite(title="Later", content="x", idempotency_key=SECRET))

    def test_words_names_digests_and_tried_texts_are_not_remembered(self):
        digest = "0b7f3c1d52e64a8b0b7f3c1d52e64a8b"
        self.write(f"api_token: {digest} and postgres://ann:password@db/x")
        self.assertEqual(self.kept(f"commit {digest}, password"), f"commit {digest}, password")
        self.tried(f"api_key={SECRET}")
        self.assertIn(SECRET, self.kept(f"see {SECRET}"))
        for value in "gpt-4o-mini localhost:8000 Python3.11 ABC-1234 claude-opus-4-20250514 utf8mb4_general".split():
            self.write(f"password: {value}\ntoken = {value}\n| password | {value} |")
            self.assertEqual(self.kept(f"we use {value} here"), f"we use {value} here")

    def test_a_session_goes_on_after_a_text_gave_its_id_as_a_token(self):
        own, other = "ses_4f8aF3kd9Xq", "ses_7b2cK9mT4Wz"
        with self.store("alpha", session_id=own):
            start_session(command=SessionStart(session_id=own))
            write_memory(command=MemoryWrite(title="Cookies", content=f"password: {own}, password: {other}"))
            end_session(command=SessionEnd(session_id=own, summary=f"password: {own}"))
        with self.store("alpha", session_id=other):
            start_session(command=SessionStart(session_id=other))
            write_memory(command=MemoryWrite(title="Later", content=f"{own} and {other}"))
            self.assertIn(f"{own} and [REDACTED", RawEvent.objects.latest("position").payload_json)
            end_session(command=SessionEnd(session_id=other, summary="Done."))
            self.assertEqual(list(Session.objects.values_list("session_id", flat=True)), [own, other])
            self.assertEqual(Session.objects.exclude(summary="").count(), 2)
            self.assert_rebuilds()

    def test_the_id_of_a_session_stays_in_an_event_that_waits_in_the_spool(self):
        event = {"session_id": "ses_4f8aF3kd9Xq", "prompt": "password: ses_4f8aF3kd9Xq"}
        clean, _ = sanitize(event)
        self.assertEqual(clean, {**event, "prompt": "password: [REDACTED:secret]"})

    def test_the_secrets_of_a_text_are_looked_up_at_once(self):
        text = "".join(f"password=kX3vR9pLm2Qw{number:04}TzB\n" for number in range(40))
        with self.store("alpha"), mock.patch.object(context, "_read_secrets", wraps=context._read_secrets) as read:
            sanitize_text(text)
        self.assertLessEqual(read.call_count, 2)

    def test_an_allowed_value_is_stored_again(self):
        self.write(f"api_key={SECRET}")
        self.change(secret_allow=[SECRET])
        self.assertIn(SECRET, self.kept(f"see {SECRET}"))


class OwnRulesTests(SecretsTestCase):
    def test_a_memory_with_a_tag_that_a_later_rule_matches_is_changed_deleted_and_restored(self):
        tag = "release notes of the quarter for badge acme-123456 in berlin city"[:64]  # too long, once it is masked
        with self.store("alpha"):
            first = write_memory(command=MemoryWrite(title="Badges", content="One each.", tags=[tag]))
            self.change(secret_rules=[{**BADGE, "pattern": "acme-([0-9]{6})"}])
            touch = {"id": first.id, "idempotency_key": "d1"}
            self.assertEqual(delete_memory(command=MemoryTouch(**touch)).status, "deleted")
            self.assertEqual(delete_memory(command=MemoryTouch(**touch)).tags, [tag])
            self.assertEqual(restore_memory(command=MemoryTouch(id=first.id)).status, "restored")
            with self.assertRaisesMessage(Invalid, "after removing private text and secrets, 'tags[0]' must have"):
                update_memory(command=MemoryUpdate(id=first.id, content="Two each."))
            update = MemoryUpdate(id=first.id, content="Two each.", tags=["badges"])
            self.assertEqual(update_memory(command=update).version, 2)

    def test_rules_apply_in_their_project_only_and_where_their_keywords_are(self):
        self.change(secret_rules=[BADGE])
        self.assertRegex(self.kept("of ACME-123456"), r"^of ACME-\[REDACTED:secret:[0-9a-f]{4}\]$")
        self.assertEqual(self.kept("of ACME-123456", "beta"), "of ACME-123456")
        self.change(secret_rules=[{**BADGE, "keywords": ["Badge"], "type": "badge"}])
        self.assertEqual(self.kept("of ACME-123456"), "of ACME-123456")
        self.assertIn("[REDACTED:badge:", self.kept("BADGE ACME-123456"))
        self.change(secret_rules=None)
        self.assertEqual(self.kept("BADGE ACME-123456"), "BADGE ACME-123456")

    def test_values_are_allowed_exactly_or_by_pattern_but_private_blocks_never(self):
        self.change(secret_allow=[TOKEN, "/hunter[0-9]+/", "/.*private.*/"])
        text = f"{TOKEN} password=hunter22 password=other99x <private>hunter22</private>"
        self.assertRegex(self.kept(text), rf"^{TOKEN} password=hunter22 password=\[REDACTED:secret:\w+\] $")

    def test_allowed_values_are_logged_unchanged(self):
        self.change(secret_allow=[TOKEN], secret_rules=[BADGE])
        with self.store("alpha"):
            self.assertIn(TOKEN, Setting.objects.get(name="secret_allow").value)
            self.assertIn(TOKEN, RawEvent.objects.get(event_type="project.configured").payload_json)
            self.assert_rebuilds()

    def test_rules_of_other_processes_and_earlier_versions_apply_at_the_next_read(self):
        self.assertEqual(self.kept("of ACME-123456"), "of ACME-123456")
        too_large_to_be_set = "ACME-[0-9]{6}[a-z]{0,990}[A-Z]{0,990}"
        for pattern in ("ACME-[0-9]{6}", too_large_to_be_set):
            with self.environment(MEMORY_HUB_SECRET_RULES=json.dumps([{"id": "badge", "pattern": pattern}])):
                self.assertIn("[REDACTED:secret:", self.kept("of ACME-123456"))

    def test_they_are_read_once_for_many_texts(self):
        self.kept("warm")
        with self.store("alpha"), mock.patch.object(current_settings, "project_settings") as reading:
            for number in range(50):
                sanitize_text(f"a text of its own, number {number}, that is long enough")
        reading.assert_not_called()

    def test_bad_rules_are_refused_in_one_sentence(self):
        for settings, message in (
            ({"secret_rules": [{"id": "a", "pattern": "a("}]}, "'a(' is not a valid RE2 pattern: missing )"),
            ({"secret_rules": [{"id": "a", "pattern": "(?=a)b"}]}, "is not a valid RE2 pattern"),
            ({"secret_rules": [{"id": "a", "pattern": "a*"}]}, "matches the empty text"),
            ({"secret_rules": [{"id": "a", "pattern": "a" * 1001}]}, "must have at most 1000 characters"),
            ({"secret_rules": [{"id": "A b", "pattern": "a"}]}, "'secret_rules[0].id' must match"),
            ({"secret_allow": ["/a*/"]}, "'secret_allow[0]' is not valid"),
            ({"secret_allow": ["ab"]}, "must have at least 3 characters"),
            ({"secret_rules": [{"id": "a", "pattern": TOKEN}]}, "describe its form instead"),
        ):
            with self.subTest(message=message), self.assertRaises(Invalid) as refused:
                self.change(**settings)
            self.assertIn(message, refused.exception.message)
        self.assertEqual((self.count(Setting), self.count(RawEvent)), (0, 0))

    def test_patterns_that_would_slow_down_every_write_are_refused(self):
        many = [{"id": f"a{number}", "pattern": f"[a-z]{{{number + 200}}}"} for number in range(20)]
        self.change(secret_rules=many[:5])
        for settings in (
            {"secret_rules": many},
            {"secret_allow": ["/[a-z]{1000}/", "/[b-z]{1000}/"]},
            {"secret_rules": [{"id": "a", "pattern": "(a|b|ab|[a-z])*[a-z]{0,900}[0-9]{900}x"}]},
        ):
            with self.subTest(settings), self.assertRaises(Invalid) as refused:
                self.change(**settings)
            self.assertRegex(refused.exception.message, r"take [0-9,]+ steps for each character, at most 2,500")
            with self.assertRaises(Invalid):
                self.tried("a text", **settings)
        self.assertEqual(self.count(Setting), 1)

    def test_a_rule_that_matches_everything_leaves_a_log_that_holds_and_can_be_changed_back(self):
        wide = (".+", "(?s).", "[0-9]", "[a-z]+", "[0-9a-f]{4,}", r'[\[\]{}:",]', "a", "true|null|id|secret|alpha")
        for number, pattern in enumerate(wide):
            with self.subTest(pattern):
                self.change(secret_rules=[{"id": "wide", "pattern": pattern}])
                self.change(review_sample_percent=number + 1)
                with self.store("alpha", session_id=f"s-{number}", actor="ann"):
                    start_session(command=SessionStart(session_id=f"s-{number}", purpose="A purpose"))
                    write_memory(command=MemoryWrite(title=f"Under {pattern}", content=f"Text 1, {pattern}"))
                    end_session(command=SessionEnd(session_id=f"s-{number}", summary="Text 2"))
                    settings = dict(Setting.objects.values_list("name", "value"))
                self.assertEqual(settings["secret_rules"][0]["pattern"], pattern)
                self.assertEqual(settings["review_sample_percent"], number + 1)
                self.change(secret_rules=None)
                self.assertEqual(self.kept(f"clear text 9 {pattern}"), f"clear text 9 {pattern}")
                with self.store("alpha"):
                    self.assert_sound()

    def test_a_rule_does_not_mask_its_pattern(self):
        falcon = {"id": "falcon", "pattern": "Project Falcon", "keywords": ["falcon"], "description": "Project Falcon"}
        for rules in ([falcon], [falcon, BADGE]):
            self.change(secret_rules=rules)
            self.assertRegex(self.kept("About Project Falcon."), r"^About \[REDACTED:secret:[0-9a-f]{4}\]\.$")
        with self.store("alpha"):
            self.assertEqual(look_through().finds, 0)

    def test_what_matches_too_often_is_masked_as_a_whole(self):
        self.change(secret_rules=[{"id": "wide", "pattern": "a"}])
        kept = self.kept("ab" * 11_000)
        self.assertEqual(kept.count("[REDACTED:secret:"), 10_001)
        self.assertEqual(kept[-1], "]")

    def test_patterns_that_were_tried_are_forgotten(self):
        before = rule.compiled.cache_info().currsize
        self.tried("a text", secret_rules=[{"id": f"a{number}", "pattern": f"b{number}"} for number in range(100)])
        self.assertEqual(rule.compiled.cache_info().currsize, before)


class TryingTests(SecretsTestCase):
    def test_findings_name_the_rule_and_its_origin_but_not_the_secret(self):
        self.change(secret_rules=[BADGE])
        tried = self.tried(f"of ACME-123456, {TOKEN} <private>x</private> AIK_CI_{TOKEN[4:24]}")
        self.assertEqual([secret.rule for secret in tried.found][:3], ["own:badge", "npm-token", "private-block"])
        self.assertEqual(tried.found[0].description, "The number of a badge")
        self.assertEqual(tried.found[0].origins, ["this project"])
        self.assertIn("betterleaks 2.0.0-rc.4, aikido-ci-token (MIT)", tried.found[3].origins)
        self.assertNotIn(TOKEN, tried.model_dump_json())

    def test_other_rules_than_the_projects_can_be_tried_and_nothing_is_written(self):
        self.change(secret_rules=[BADGE])
        before = self.count(RawEvent)
        tried = self.tried(f"of ACME-123456 {TOKEN}", secret_rules=[], secret_allow=[TOKEN])
        self.assertEqual((tried.text, tried.found), (f"of ACME-123456 {TOKEN}", []))
        self.assertEqual(self.count(RawEvent), before)


class DoorTests(RestTestCase):
    def run_on(self, text: str, **options: Any) -> tuple[str, str]:
        (self.home / "a.txt").write_text(text)
        out, err = StringIO(), StringIO()
        call_command("sanitise", str(self.home / "a.txt"), project="alpha", stdout=out, stderr=err, **options)
        return out.getvalue(), err.getvalue()

    def test_the_command_prints_what_would_be_kept_and_apart_from_it_what_was_found(self):
        out, err = self.run_on(f"one\nkey {TOKEN}\n")
        self.assertRegex(out, r"^one\nkey \[REDACTED:npm-token:[0-9a-f]{4}\]\n$")
        self.assertIn("2:5 npm-token: A npm token. [npm-token; Memory Hub (MIT)]", err)
        self.assertNotIn(TOKEN, out + err)
        self.assertEqual(self.run_on("nothing\n", check=True), ("", ""))
        with self.assertRaises(CommandError) as ended:
            self.run_on(f"key {TOKEN}\n", check=True)
        self.assertEqual(ended.exception.returncode, 1)
        with self.assertRaisesRegex(CommandError, "can't read"):
            call_command("sanitise", "/nowhere/a.txt", project="alpha")

    def test_the_route_answers_what_would_be_kept(self):
        fields = {"text": f"key {TOKEN} of ann@example.org", "mask_personal": ["email"]}
        response = self.call("POST", "projects/alpha/sanitise", fields)
        self.assertEqual([match["type"] for match in response.data["found"]], ["npm-token", "email"])
        self.assertNotIn(TOKEN, response.content.decode())
        self.call("POST", "projects/alpha/sanitise", {"text": "a", "secret_allow": ["/a(/"]}, expect=422)


TEXT = "Ann, ann@example.org, +49 30 12345678, 4111 1111 1111 1111, DE89370400440532013000, 529.982.247-25"

MASKED = "Ann, [REDACTED:email], [REDACTED:phone], [REDACTED:card], [REDACTED:iban], [REDACTED:national-id]"

ALL = tuple(map(str, Personal))


def masked(text: str, *types: str) -> str:
    with use_rules(compiled_rules((), (), types)):
        return sanitize_text(text)[0]


class PersonalDataTests(SecretsTestCase):
    def test_it_is_kept_by_default_and_masked_by_type(self):
        self.assertEqual(ProjectSettings().mask_personal, [])
        self.assertEqual(sanitize_text(TEXT)[0], TEXT)
        self.assertEqual(masked(TEXT, *ALL), MASKED)
        self.assertEqual(masked("ann@example.org +49 30 12345678", "phone"), "ann@example.org [REDACTED:phone]")
        self.assertEqual(set(ALL), set(get_args(PersonalType)))
        self.assertEqual(masked(MASKED, *ALL), MASKED)

    def test_numbers_without_valid_check_digits_stay(self):
        numbers = ("4111 1111 1111 1112", "DE89370400440532013001", "529.982.247-26", "12345678A", "1700000000000")
        for text in (*numbers, "git@github.com:a/b.git", "@@ -100,20 +100,20 @@", "2026-11-23 12:00:01"):
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
            self.kept(TEXT), r"^Ann, \[REDACTED:email:\w{4}\], \+49 30 12345678, \[REDACTED:card:\w{4}\], DE89"
        )
        self.assertEqual(self.kept(TEXT, "beta"), TEXT)
        with self.assertRaisesRegex(Invalid, "mask_personal"):
            self.change(mask_personal=["names"])
        self.assertIn("REDACTED:email", self.kept(TEXT))

    def test_the_environment_the_configuration_file_and_the_command_ask_for_it(self):
        with self.environment(MEMORY_HUB_MASK_PERSONAL="iban, national_id"):
            self.assertEqual(self.kept(TEXT).count("REDACTED"), 2)
        config = self.home / "config.toml"
        config.write_text('mask_personal = ["email"]\n')
        context.forget_rules()
        self.assertEqual(self.kept(TEXT).count("REDACTED"), 1)
        config.unlink()
        context.forget_rules()
        self.change(mask_personal=["email"])
        call_command("settings", "mask_personal", '["phone"]', project="alpha", stdout=StringIO())
        self.assertEqual(self.kept(TEXT).count("[REDACTED:phone"), 1)

    def test_it_is_tried_with_the_name_of_the_rule(self):
        tried = self.tried(TEXT, mask_personal=["card"])
        self.assertEqual([match.rule for match in tried.found], ["personal-card"])
        self.assertEqual(self.kept(TEXT), TEXT)

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
            self.assert_rebuilds()

    def test_personal_data_is_not_remembered(self):
        self.change(mask_personal=["email"])
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="Customer", content="ann.1x@example.org"))
        self.change(mask_personal=[])
        self.assertEqual(self.kept("ann.1x@example.org"), "ann.1x@example.org")


class OnThePageTests(AdminTestCase):
    def test_types_are_chosen_and_saved(self):
        fields = {"rule-TOTAL_FORMS": "0", "rule-INITIAL_FORMS": "0", "text": "", "allow": ""}
        self.assertIn("were saved", self.post("secrets/", **fields, personal="email", do="save"))
        self.assertIn(
            'value="email" id="id_personal_0" checked', self.page("secrets/", part="rules").replace("\n", " ")
        )
        self.assertNotIn("ann@example.org", self.memory(self.write("A", TEXT)).content)
