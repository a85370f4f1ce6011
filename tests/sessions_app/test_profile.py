"""A store describes itself in its own log: name, purpose, belonging."""

from __future__ import annotations

from pydantic import ValidationError

from memoryhub.core import log
from memoryhub.core.errors import Forbidden, Invalid, NotFound
from memoryhub.core.log.event_view import as_of
from memoryhub.core.stores.store import GLOBAL_STORE, org_store, use_store
from sessions_app.schemas import OrgDescribe, ProfileView, ProjectDescribe
from sessions_app.selectors import org_of_project, profile
from sessions_app.services.profile import describe
from tests.support import HubTestCase

GITHUB_TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class ProfileTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with use_store(org_store("acme"), create=True):
            pass
        self.enterContext(self.store("alpha"))

    def test_a_store_that_was_never_described_has_an_empty_profile(self) -> None:
        self.assertEqual(profile(), ProfileView())
        self.assertIsNone(org_of_project())

    def test_a_change_carries_only_what_was_set(self) -> None:
        describe(command=ProjectDescribe(name="Alpha", org_id="acme", metadata={"goals": ["ship"]}, tags=["Ops"]))
        described = describe(command=ProjectDescribe(description="An aquarium."))
        self.assertEqual((described.profile.name, described.profile.description), ("Alpha", "An aquarium."))
        self.assertEqual((described.profile.metadata, described.profile.tags), ({"goals": ["ship"]}, ["ops"]))
        self.assertEqual(org_of_project(), "acme")
        payloads = [event.payload.model_dump(exclude_unset=True) for event in log.read(log.ReplayWindow())]
        self.assertEqual(payloads[1], {"description": "An aquarium."})

    def test_fields_set_to_null_are_reset(self) -> None:
        describe(command=ProjectDescribe(name="Alpha", org_id="acme", root_path="/src/alpha"))
        describe(command=ProjectDescribe(name="", org_id=None, root_path=""))
        self.assertEqual((profile().name, profile().org, profile().root_path), ("", None, ""))

    def test_a_description_without_changes_is_not_written(self) -> None:
        describe(command=ProjectDescribe(name="Alpha"))
        before = log.head()
        describe(command=ProjectDescribe(name=" Alpha "))
        self.assertEqual(log.head(), before)

    def test_the_same_key_again_changes_nothing(self) -> None:
        describe(command=ProjectDescribe(name="First", idempotency_key="k"))
        describe(command=ProjectDescribe(name="Second"))
        self.assertEqual(describe(command=ProjectDescribe(name="First", idempotency_key="k")).profile.name, "Second")

    def test_an_unknown_organisation_is_refused_with_the_known_ones(self) -> None:
        with self.assertRaisesRegex(NotFound, "no organisation 'umbrella'.*known: acme"):
            describe(command=ProjectDescribe(name="Alpha", org_id="umbrella"))
        self.assertEqual(profile(), ProfileView())

    def test_an_organisation_and_the_global_scope_have_no_organisation(self) -> None:
        for store in (org_store("acme"), GLOBAL_STORE):
            with use_store(store, create=True):
                describe(command=OrgDescribe(name="Everybody"))
                with self.assertRaisesRegex(Invalid, "'org_id' belongs to a project"):
                    describe(command=ProjectDescribe(org_id="acme"))
                self.assertEqual((profile().name, profile().org), ("Everybody", None))
                self.assertTrue(log.rebuild().identical)

    def test_secrets_are_taken_out(self) -> None:
        described = describe(
            command=ProjectDescribe(name=f"Alpha {GITHUB_TOKEN}", metadata={"password": "Tr0ub4dor-and-3"})
        )
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
        describe(command=ProjectDescribe(name="Alpha"))
        describe(command=ProjectDescribe(name="Beta"))
        with as_of(1):
            self.assertEqual(profile().name, "Alpha")
            with self.assertRaises(Forbidden):
                describe(command=ProjectDescribe(name="Gamma"))

    def test_a_rebuild_comes_out_the_same_and_without_what_was_erased(self) -> None:
        describe(command=ProjectDescribe(name="Alpha", metadata={"b": 1, "a": [True, None]}, org_id="acme"))
        describe(command=ProjectDescribe(description="An aquarium.", tags=["ops"]))
        self.assertTrue(log.rebuild().identical)
        self.assertEqual((profile().name, profile().metadata), ("Alpha", {"b": 1, "a": [True, None]}))
        log.erase_streams(["project"], reason="leaving")
        self.assertEqual(profile(), ProfileView())
        describe(command=ProjectDescribe(description="Rewritten."))
        report = log.rebuild()
        self.assertTrue(report.identical)
        self.assertEqual((profile().name, profile().description), ("", "Rewritten."))
