"""A project in which agents record no decisions, by every door."""

from __future__ import annotations

from decisions.models import Decision
from decisions.schemas import DecisionEvidence, DecisionRecord, DecisionSupersede
from decisions.services import add_evidence, record_decision, supersede_decision
from memoryhub.core import log
from memoryhub.core.errors import Forbidden
from memoryhub.core.origin import use_origin
from memoryhub.registry.tokens import TokenCreate, create_token
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.api.client import RestTestCase

ROUTE = "projects/alpha/decisions"
SENTENCE = "agents cannot record decisions here: capture_decisions is false, set by the project; ask the user"


class CaptureDecisionsTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            self.earlier = self.record("Use WAL")
            change_settings(command=SettingsChange(settings={"capture_decisions": False}))

    def record(self, title: str) -> int:
        return record_decision(command=DecisionRecord(title=title, chosen="that")).id

    def test_an_agents_decisions_are_refused_and_nothing_is_kept(self):
        with self.store("alpha", source="mcp", actor="agent"):
            head = log.head()
            with self.assertRaisesRegex(Forbidden, SENTENCE):
                self.record("Use Rust")
            with self.assertRaisesRegex(Forbidden, SENTENCE):
                supersede_decision(command=DecisionSupersede(id=self.earlier, chosen="another"))
            self.assertEqual((log.head(), Decision.objects.count()), (head, 1))
            add_evidence(command=DecisionEvidence(id=self.earlier, notes=["seen at work"]))
        with self.store("beta", source="mcp", actor="agent"):
            self.assertTrue(self.record("Use Rust"))

    def test_an_agents_token_is_refused_over_rest_and_a_person_is_not(self):
        _, text = create_token(command=TokenCreate(name="bot", projects=["alpha"], verbs=["write"]), by="ann")
        body = {"title": "Use Rust", "chosen": "Rust"}
        refused = self.call("POST", ROUTE, body, token=text, expect=403)
        self.assertIn(SENTENCE, refused.data["detail"])
        self.call("POST", f"{ROUTE}/{self.earlier}/supersede", {"chosen": "another"}, token=text, expect=403)
        self.call("POST", ROUTE, body, expect=201)

    def test_people_imports_and_the_command_line_go_on(self):
        for source in ("admin", "cli", "service"):
            with self.subTest(source=source), self.store("alpha"), use_origin(source=source, actor="ann"):
                self.assertTrue(self.record(f"By {source}"))

    def test_a_setting_can_be_reset(self):
        with self.store("alpha", source="mcp"):
            change_settings(command=SettingsChange(settings={"capture_decisions": None}))
            self.assertTrue(self.record("Use Rust"))
