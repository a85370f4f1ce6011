"""Sanitising is idempotent, and no rule can be made slow."""

import ast
import re
from pathlib import Path
from typing import Any
from unittest import TestCase

from hypothesis import example, given, settings
from hypothesis import strategies as st

from memoryhub.core.secrets import sanitize as sanitizing
from memoryhub.core.secrets.catalogue import detector, lines
from memoryhub.core.secrets.checks import CHECKS
from memoryhub.core.secrets.columns import Read, cells_below
from memoryhub.core.secrets.engine import VALUE_CHECKS
from memoryhub.core.secrets.found import Places
from memoryhub.core.secrets.rule import Form, Rule, compiled
from memoryhub.core.secrets.sanitize import sanitize, sanitize_text
from tests.core.test_sanitize import BODY, TOKENS

fragments = st.sampled_from(
    [
        *TOKENS.values(),
        "ghp_",
        BODY[:36],
        "<private>",
        "</private>",
        "<pri",
        "vate>",
        "<private",
        ">",
        "<",
        "/",
        "password=",
        '"',
        "\\",
        "://",
        "a:",
        "@",
        " ",
        "[REDACTED:",
        "secret]",
        "]",
        "hunter2x9",
        "token: ",
        "\x00",
        "\ud800",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "İ",
        "eyJ",
        ".",
        "x",
        "é",
        "\n",
        "sk-",
        "Bearer ",
        "aws_secret=",
        "-us1",
        "Q~",
        "q2w3e4r5",
        "kX3vR9pLm2Qw7TzB4nYs8HcJ5dFg",
        "Falcon4821!x",
        "API key - ",
        "| ",
        " → ",
        "密码是",
        "пароль: ",
        "sessionid=",
        "creds: ann / ",
        "**",
        " as the password",
        "&a=",
    ]
)
texts = st.one_of(st.lists(fragments, max_size=14).map("".join), st.text(st.characters(codec=None)))
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)


class PropertiesTest(TestCase):
    @given(texts)
    @settings(max_examples=600, deadline=None)
    @example("<private a=\"password='x<y9zzzz'\">b")
    @example(f"password=abc1ghp_{BODY[:36]}")
    def test_a_clean_text_stays_as_it_is_and_can_be_stored(self, text: str) -> None:
        clean, findings = sanitize_text(text)
        self.assertEqual(sanitize_text(clean), (clean, []))
        clean.encode()
        self.assertNotIn("\x00", clean)
        for finding in findings:
            self.assertTrue(0 <= finding.start <= finding.end <= len(text))

    @given(json_values)
    @settings(max_examples=200, deadline=None)
    def test_a_clean_value_stays_as_it_is(self, value: Any) -> None:
        clean, _ = sanitize(value)
        self.assertEqual(sanitize(clean), (clean, []))

    @given(texts)
    @settings(max_examples=300, deadline=None)
    def test_no_private_tag_is_left(self, text: str) -> None:
        self.assertIsNone(re.search(r"<\s*/?\s*private\s*>", sanitize_text(text)[0], re.IGNORECASE))


class PlacesTest(TestCase):
    @given(st.sets(st.text("aB.(", min_size=1, max_size=4), max_size=8), st.text("aAbB.(", max_size=40))
    def test_every_place_is_found_with_all_that_begins_there(self, words: set[str], text: str) -> None:
        rules = [Rule(word, "x", Form.AT, (word.encode(),), any_case=word.islower()) for word in sorted(words)]
        expected = [
            (place, {(rule.id, len(rule.id)) for rule in found})
            for place in range(len(text))
            if (found := [rule for rule in rules if _begins(rule, text[place:])])
        ]
        places = Places(rules).of(text.encode())
        self.assertEqual([(place, {(rule.id, size) for rule, size in found}) for place, found in places], expected)


def _begins(rule: Rule, text: str) -> bool:
    return text.lower().startswith(rule.id) if rule.any_case else text.startswith(rule.id)


class RulesTest(TestCase):
    RULES = detector().rules

    def test_names_are_unique_and_types_fit_a_tag(self) -> None:
        self.assertGreaterEqual(len(self.RULES), 400)
        self.assertEqual(len({rule.id for rule in self.RULES}), len(self.RULES))
        for rule in self.RULES:
            with self.subTest(rule=rule.id):
                self.assertRegex(rule.type, r"^[a-z0-9-]{1,40}$")
                self.assertEqual(bool(rule.keywords), rule.form is not Form.ALL)
                self.assertTrue(
                    not rule.any_case
                    or not any(word.isascii() and word.lower() != word for word in rule.keywords if b"\\" not in word)
                )
                self.assertLessEqual(set(rule.checks), {*CHECKS, *VALUE_CHECKS})
                self.assertTrue(rule.pattern or set(rule.checks) & set(VALUE_CHECKS))

    def test_re2_takes_every_pattern(self) -> None:
        for rule in self.RULES:
            for pattern in filter(None, (rule.pattern, rule.name, *rule.allow)):
                with self.subTest(rule=rule.id):
                    self.assertIsNone(compiled(pattern).find(b"", 0, 0) if pattern == rule.pattern else None)

    def test_every_rule_says_where_it_comes_from(self) -> None:
        head, *rules = lines()
        for line in rules:
            self.assertTrue(line["description"])
            self.assertTrue(line["from"])
            for origin in line["from"]:
                self.assertEqual(head["sources"][origin["project"]]["licence"], "MIT")
                self.assertTrue(origin["project"] == "memory-hub" or origin["rule"])
        notice = (Path(sanitizing.__file__).parent / "NOTICE").read_text().lower()
        self.assertTrue(all(name in notice for name in head["sources"] if name != "memory-hub"))

    def test_no_pattern_is_in_a_backtracking_engine(self) -> None:
        folder = Path(sanitizing.__file__).parent
        for file in [folder / "sanitize.py", *(folder / "secrets").glob("*.py")]:
            names = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Import)]
            self.assertNotIn("re", {alias.name for node in names for alias in node.names}, file)

    def test_a_text_without_keywords_costs_no_attempt_at_a_pattern(self) -> None:
        text = b"The quick brown fox jumps over the lazy dog; nothing here is hidden. " * 1000
        self.assertEqual(detector().places(text), [])

    def test_places_grow_with_the_text_and_no_faster(self) -> None:
        for unit in (b"token=", b"eyJ", b"-----BEGIN PRIVATE KEY-----", b"://a:", b"sk-proj-", b"password='x"):
            few, many = (len(detector().places(unit * n)) for n in (100, 1000))
            self.assertLessEqual(many, 11 * few + 20, unit)

    def test_the_rows_below_a_name_are_read_once(self) -> None:
        for unit in ("token,a\n", "token,token,token\n", "| token | a |\n|---|---|\n", "token,a\n----\n"):
            data, read = unit.encode() * 500, dict[int, Read]()
            starts = [place for place in range(len(data)) if data.startswith(b"token", place)]
            cells = sum(len(list(cells_below(data, start, start + 5, read))) for start in starts)
            self.assertLessEqual(cells, len(starts), unit)
