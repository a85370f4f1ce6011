"""Where settings come from, the folder's file, and how a store describes itself."""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from pydantic import ValidationError

from memoryhub.config.current_settings import (
    FolderSettings,
    allowed_in_folders,
    config_problem,
    project_settings,
    read_folder,
    settings_decided_by,
    unknown_in_config,
    use_folder,
)
from memoryhub.config.identity import bind_project
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core import log
from memoryhub.core.errors import Forbidden, Invalid, NotFound, Unavailable
from memoryhub.core.log.views import as_of
from memoryhub.core.permissions import MEMBER_ROLES, Grant, use_grant
from memoryhub.core.stores.store import GLOBAL_STORE, org_store, use_store
from memoryhub.web.signin import ensure_owner
from sessions_app.hook_parser import parse_hook
from sessions_app.schemas import OrgDescribe, ProfileView, ProjectDescribe, SettingsChange
from sessions_app.selectors import org_of_project, profile
from sessions_app.services.capture import folder_settings_of
from sessions_app.services.profile import Described, change_settings, describe
from tests.permissions.base import browser_of
from tests.support import HubTestCase

FILE = ".memory-hub.toml"


class InAFolderTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="work-"))).resolve()
        self.file = self.folder / FILE
        self.enterContext(self.store("alpha"))

    def use_file(self, text: str) -> FolderSettings:
        self.file.write_text(text)
        return read_folder(self.folder, "alpha")

    def run_here(self, *words: str) -> str:
        out = io.StringIO()
        with mock.patch("pathlib.Path.cwd", return_value=self.folder):
            call_command(*words, "--project", "alpha", stdout=out)
        return out.getvalue()


class LayersTests(InAFolderTestCase):
    def test_the_first_layer_that_sets_a_value_takes_precedence_and_is_reported(self):
        with use_folder(self.use_file('search_mode = "basic"\n')):
            self.decided("basic", str(self.file))
            change_settings(command=SettingsChange(settings={"search_mode": "fts5"}))
            self.decided("fts5", "the project")
            (self.home / "config.toml").write_text('search_mode = "auto"\n')
            self.decided("auto", "config.toml in the home folder")
            with mock.patch.dict(os.environ, MEMORY_HUB_SEARCH_MODE="basic"):
                self.decided("basic", "the environment (MEMORY_HUB_SEARCH_MODE)")

    def decided(self, value: str, by: str) -> None:
        self.assertEqual(project_settings().search_mode, value)
        self.assertEqual(settings_decided_by(), {"search_mode": by})
        shown = json.loads(self.run_here("settings", "search_mode", "--json"))
        self.assertEqual(shown, {"search_mode": {"value": value, "decided_by": by}})

    def test_the_command_changes_what_the_project_decides_and_nothing_else(self):
        for words, line in (
            (("ack_token_minutes", "12"), r"ack_token_minutes +12 +the project"),
            (("ranking", '{"text": 2}'), r'ranking +\{"relation": 5.0.*"text": 2'),
            (("retention_days", "never"), r"retention_days +never +the project"),
            (("ack_token_minutes", "--default"), r"ack_token_minutes +30 +the default"),
        ):
            with self.subTest(words=words):
                self.assertRegex(self.run_here("settings", *words), line)
        for arguments, sentence in (
            (("colour",), "there is no setting 'colour'; known settings: turn_policy"),
            (("search_mode", "zip"), "'search_mode' must be one of 'auto', 'fts5' or 'basic', not 'zip'"),
            (("--default",), "--default needs the name of a setting"),
        ):
            with self.subTest(arguments), self.assertRaisesRegex(CommandError, sentence):
                self.run_here("settings", *arguments)
        self.assertEqual(len(self.run_here("settings").splitlines()), 1 + len(ProjectSettings.model_fields))

    def test_an_unreadable_file_is_reported_with_its_path(self):
        config = self.home / "config.toml"
        lax = "'turn_policy' must be one of 'auto' or 'strict', not 'lax'; fix it where it is set, in config"
        for text, sentence in (
            ('turn_policy = "strict"\nx = = 3\n', r"config\.toml, line 2, column 5: invalid value; fix it there, or"),
            ('turn_policy = "lax"\n', lax),
        ):
            config.write_text(text)
            with self.subTest(text=text), self.assertRaisesRegex(Unavailable, sentence):
                project_settings()
            self.assertTrue(config_problem())
        config.unlink()
        with mock.patch.dict(os.environ, MEMORY_HUB_RANKING="{"), self.assertRaisesRegex(Unavailable, "is not JSON"):
            project_settings()
        for name, unknown in (("serch_mode", ["serch_mode"]), ("search_mode", [])):
            config.write_text(f'{name} = "auto"\nenabled = true\n')
            self.assertEqual(project_settings(), ProjectSettings())
            self.assertEqual((config_problem(), unknown_in_config()), ("", unknown))


class ModelTests(HubTestCase):
    def configured(self, model: str | None) -> None:
        change_settings(command=SettingsChange(settings={"embedding_model": model}))

    def test_a_folder_or_a_hub_id_as_model_needs_the_right_to_administer_the_hub(self) -> None:
        owner = Grant(places={"project:alpha": MEMBER_ROLES["owner"]}, acts=frozenset(), everywhere=False)
        self.enterContext(self.store("alpha"))
        for model in ("~root", "/etc", "../x", "owner/name", "other"):
            refused = self.assertRaisesMessage(Forbidden, "choose a model from the hub's disk or the network")
            with self.subTest(model=model), use_grant(owner), refused:
                self.configured(model)
        self.configured("owner/name")
        with use_grant(owner):
            change_settings(command=SettingsChange(settings={"embedding_model": "owner/name", "recall": False}))
            for other in ("none", "auto", None):
                self.configured(other)


class FolderFileTests(InAFolderTestCase):
    def test_settings_that_weaken_protection_are_refused(self):
        for name in set(ProjectSettings.model_fields) - set(allowed_in_folders()):
            with self.subTest(name=name), self.assertRaisesRegex(Invalid, f"'{name}' can't be set by a folder's file"):
                self.use_file(f"{name} = 1\n")
        for name in ("secret_allow", "secret_rules", "retention_days", "review_policy", "embedding_model"):
            self.assertNotIn(name, allowed_in_folders())

    def test_other_settings_only_become_stricter_and_errors_are_one_sentence_with_the_file_name(self):
        for text, sentence in (
            ('turn_policy = "auto"', "'turn_policy' may only be 'strict'"),
            ("ack_token_minutes = 31", "'ack_token_minutes' may be at most 30 in a folder's file, not 31"),
            ("conflict_window_seconds = 6", "'conflict_window_seconds' may be at most 5"),
            ('serch_mode = "basic"', r"there is no setting 'serch_mode' \(did you mean 'search_mode'\?\)"),
            ("capture_commits = 'maybe'", "'capture_commits' must be true or false, not 'maybe'; fix or remove it"),
            ("= 3", "cannot be read"),
            ("a = " + "[\n" * 20_000, "cannot be read: it is nested too deeply; fix or remove it"),
        ):
            with self.subTest(text=text[:40]), self.assertRaisesRegex(Invalid, f"{self.file}.*{sentence}"):
                self.use_file(text)
        with self.assertRaisesRegex(CommandError, "cannot be read"):
            self.run_here("search", "anything")
        with use_folder(self.use_file('turn_policy = "strict"\nack_token_minutes = 5\nconflict_window_seconds = 0\n')):
            self.assertEqual(project_settings().ack_token_minutes, 5)

    def test_it_counts_in_folders_below_and_not_for_another_project(self):
        self.assertEqual(self.use_file('project = "beta"\nsearch_mode = "basic"\n').values, {})
        self.use_file('project = "alpha"\nidentity = "folder"\nenabled = true\nsearch_mode = "basic"\n')
        below = self.folder / "a" / "b"
        below.mkdir(parents=True)
        self.assertEqual(read_folder(below, "alpha"), FolderSettings(str(self.file), {"search_mode": "basic"}))

    def test_a_hook_captures_anyway_and_reports_the_problem_to_the_session(self):
        self.file.write_text("colour = 3\n")
        data = {"session_id": "s1", "cwd": str(self.folder), "source": "startup"}
        event = parse_hook(client="claude-code", event="SessionStart", data=data)
        with self.assertLogs("sessions_app.services.capture", "WARNING"):
            folder, problem = folder_settings_of("alpha", event)
        self.assertEqual(folder.values, {})
        self.assertIn("there is no setting 'colour'", problem)

    def test_the_settings_page_shows_folder_settings(self):
        ensure_owner()
        browser, page = browser_of("owner"), "/p/alpha/admin/settings/"
        self.assertNotIn("Settings from folders", browser.get(page).content.decode())
        bind_project("alpha", self.folder)
        self.use_file('search_mode = "basic"\ncapture_commits = false\n')
        change_settings(command=SettingsChange(settings={"capture_commits": True}))
        html = browser.get(page).content.decode()
        self.assertIn(f"<code>{self.file}</code>", html)
        self.assertIn("Search mode: <strong>Basic: by parts of words, without an index</strong></li>", html)
        self.assertIn('Capture commits: <strong>No</strong> <span class="quiet">(overridden by the project', html)
        self.assertIn("Set for this project</span> Default: Yes.", html)
        self.file.write_text("secret_allow = ['x']\n")
        self.assertIn("can&#x27;t be set by a folder&#x27;s file", browser.get(page).content.decode())


GITHUB_TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class ProfileTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with use_store(org_store("acme"), create=True):
            pass
        self.enterContext(self.store("alpha"))

    def describe(self, **fields: Any) -> Described:
        return describe(command=ProjectDescribe(**fields))

    def test_a_change_carries_only_what_was_set_and_null_resets(self) -> None:
        self.assertEqual((profile(), org_of_project()), (ProfileView(), None))
        fields: dict[str, Any] = {"org_id": "acme", "metadata": {"goals": ["ship"]}, "root_path": "/src/alpha"}
        self.describe(name="Alpha", tags=["Ops"], **fields)
        described = self.describe(description="An aquarium.").profile
        self.assertEqual((described.name, described.description), ("Alpha", "An aquarium."))
        self.assertEqual((described.metadata, described.tags), ({"goals": ["ship"]}, ["ops"]))
        self.assertEqual(org_of_project(), "acme")
        payloads = [event.payload.model_dump(exclude_unset=True) for event in map(log.event_of, log.events())]
        self.assertEqual(payloads[1], {"description": "An aquarium."})
        self.describe(name="", org_id=None, root_path="")
        self.assertEqual((profile().name, profile().org, profile().root_path), ("", None, ""))

    def test_what_changes_nothing_and_the_same_key_again_are_not_written(self) -> None:
        self.describe(name="First", idempotency_key="k")
        self.describe(name="Second")
        before = log.head()
        self.describe(name=" Second ")
        self.assertEqual(self.describe(name="First", idempotency_key="k").profile.name, "Second")
        self.assertEqual(log.head(), before)

    def test_an_unknown_organisation_is_refused_with_the_known_ones(self) -> None:
        with self.assertRaisesRegex(NotFound, "no organisation 'umbrella'.*known: acme"):
            self.describe(name="Alpha", org_id="umbrella")
        self.assertEqual(profile(), ProfileView())

    def test_an_organisation_and_the_global_scope_have_no_organisation(self) -> None:
        for store in (org_store("acme"), GLOBAL_STORE):
            with use_store(store, create=True):
                describe(command=OrgDescribe(name="Everybody"))
                with self.assertRaisesRegex(Invalid, "'org_id' belongs to a project"):
                    self.describe(org_id="acme")
                self.assertEqual((profile().name, profile().org), ("Everybody", None))
                self.assert_rebuilds()

    def test_secrets_are_taken_out(self) -> None:
        described = self.describe(name=f"Alpha {GITHUB_TOKEN}", metadata={"password": "Tr0ub4dor-and-3"})
        self.assertTrue(described.redacted)
        self.assertNotIn(GITHUB_TOKEN, described.profile.name)
        self.assertRegex(described.profile.metadata["password"], r"^\[REDACTED:secret:[0-9a-f]{4}\]$")

    def test_limits_are_named(self) -> None:
        deep: dict = {}
        for _ in range(5_000):
            deep = {"a": deep}
        for fields, sentence in (
            ({"metadata": {"a": "x" * 16_000}}, "at most 16,000"),
            ({"metadata": deep}, "at most 10 levels|recursion"),
            ({"metadata": {"a": float("nan")}}, "not JSON compliant"),
            ({"name": "x" * 201}, "at most 200"),
            ({"org_id": "../beta"}, "pattern"),
        ):
            with self.assertRaisesRegex(ValidationError, sentence):
                ProjectDescribe(**fields)

    def test_the_past_cannot_be_described(self) -> None:
        self.describe(name="Alpha")
        self.describe(name="Beta")
        with as_of(1):
            self.assertEqual(profile().name, "Alpha")
            with self.assertRaises(Forbidden):
                self.describe(name="Gamma")

    def test_a_rebuild_comes_out_the_same_and_without_what_was_erased(self) -> None:
        self.describe(name="Alpha", metadata={"b": 1, "a": [True, None]}, org_id="acme")
        self.describe(description="An aquarium.", tags=["ops"])
        self.assert_rebuilds()
        self.assertEqual((profile().name, profile().metadata), ("Alpha", {"b": 1, "a": [True, None]}))
        log.erase_streams(["project"], reason="leaving")
        self.assertEqual(profile(), ProfileView())
        self.describe(description="Rewritten.")
        self.assert_rebuilds()
        self.assertEqual((profile().name, profile().description), ("", "Rewritten."))
