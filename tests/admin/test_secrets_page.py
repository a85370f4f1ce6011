"""The page about secrets: the test box, the project's own rules and the rule pack."""

from __future__ import annotations

from tests.admin.base import AdminTestCase
from tests.core.test_sanitize import TOKENS

PAGE = "secrets/"
RULES = f"{PAGE}?part=rules"
TOKEN = TOKENS["npm-token"]


def rules(*typed: dict[str, str]) -> dict[str, str]:
    fields = {"rule-TOTAL_FORMS": str(len(typed)), "rule-INITIAL_FORMS": "0", "text": "", "allow": ""}
    return fields | {
        f"rule-{number}-{name}": value for number, each in enumerate(typed) for name, value in each.items()
    }


class SecretsPageTests(AdminTestCase):
    def test_a_text_is_tried_and_what_would_go_is_marked_with_its_rule_and_origin(self):
        html = self.post(PAGE, **rules() | {"text": f"Use {TOKEN} <private>quietly</private>"})
        self.assertIn(f">{TOKEN}</mark>", html)
        self.assertIn("2 secrets found", html)
        self.assertRegex(html, r"Use \[REDACTED:npm-token:[0-9a-f]{4}\]")
        self.assertIn("Memory Hub (MIT)", html)
        self.assertNotIn(TOKEN, self.page(PAGE))
        self.assertIn(f">{TOKEN}</mark>", self.post(PAGE, text=TOKEN))

    def test_rules_are_tried_without_being_saved(self):
        html = self.post(PAGE, **rules({"id": "badge", "pattern": "ACME-[0-9]{6}"}) | {"text": "badge ACME-123456"})
        self.assertIn(">ACME-123456</mark>", html)
        self.assertNotIn('value="badge"', self.page(RULES))

    def test_rules_and_what_is_no_secret_are_saved_for_this_project_alone(self):
        typed = {"id": "badge", "pattern": "ACME-[0-9]{6}", "keywords": "acme, other", "description": "A badge"}
        self.assertIn("were saved", self.post(PAGE, **rules(typed) | {"do": "save", "allow": f"{TOKEN}\n\n"}))
        html = self.page(RULES)
        for shown in ('value="badge"', 'value="acme, other"', f">\n{TOKEN}</textarea>"):
            self.assertIn(shown, html)
        self.assertEqual(self.memory(self.write("A", f"ACME-123456 {TOKEN}")).content[-len(TOKEN) :], TOKEN)
        self.assertNotIn("ACME-123456", self.memory(self.write("B", "ACME-123456")).content)
        other = self.write("A", f"ACME-123456 {TOKEN}", project="beta")
        self.assertRegex(self.memory(other, "beta").content, r"^ACME-123456 \[REDACTED:npm-token:[0-9a-f]{4}\]$")
        self.assertNotIn('value="badge"', self.page(RULES, project="beta"))

    def test_a_bad_pattern_is_refused_in_one_sentence_and_nothing_is_saved(self):
        html = self.post(PAGE, **rules({"id": "badge", "pattern": "ACME-("}) | {"do": "save"})
        self.assertIn("is not a valid RE2 pattern: missing )", html)
        self.assertIn('value="ACME-("', html)
        self.assertNotIn('value="badge"', self.page(RULES))

    def test_the_rule_pack_is_searched_by_all_words(self):
        html = self.page(PAGE, q="github pat gitleaks")
        self.assertIn("<code>github-pat</code>", html)
        self.assertIn("gitleaks 8.30.1, github-pat (MIT)", html)
        self.assertNotIn("<code>npm-token</code>", html)
        self.assertIn("No rule contains all of these words.", self.page(PAGE, q="github zzzz"))
