"""Sanitising: the result stays as it is, whatever went in; and no rule can be made to read for long."""

import re
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any
from unittest import TestCase

from hypothesis import example, given, settings
from hypothesis import strategies as st

from memoryhub.core.detectors import DETECTORS, RULES
from memoryhub.core.detectors.engine import _lower
from memoryhub.core.detectors.keywords import Keywords
from memoryhub.core.sanitize import sanitize, sanitize_text
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

    @given(st.text())
    def test_places_agree_between_a_text_and_its_lower_case(self, text: str) -> None:
        self.assertEqual(len(_lower(text)), len(text))

    def test_only_one_character_grows_in_lower_case(self) -> None:
        self.assertEqual([c for c in map(chr, range(0x110000)) if len(c.lower()) != 1], ["\u0130"])


class KeywordsTest(TestCase):
    @given(st.sets(st.text("ab.(", min_size=1, max_size=4), max_size=8), st.text("ab.(", max_size=40))
    def test_every_place_is_found_with_the_longest_word_there(self, words: set[str], text: str) -> None:
        expected = [
            (place, max((word for word in words if text.startswith(word, place)), key=len))
            for place in range(len(text))
            if any(text.startswith(word, place) for word in words)
        ]
        self.assertEqual(list(Keywords(words).places(text)), expected)


class RulesTest(TestCase):
    def test_names_are_unique_and_types_fit_a_tag(self) -> None:
        self.assertGreaterEqual(len(RULES), 40)
        self.assertEqual(len({rule.id for rule in RULES}), len(RULES))
        for rule in RULES:
            self.assertRegex(rule.type, r"^[a-z0-9-]{1,40}$")
            self.assertTrue(rule.keywords)
            self.assertTrue(all(word == word.lower() for word in rule.keywords) or not rule.any_case)

    def test_every_pattern_is_bounded_and_fit_for_any_engine(self) -> None:
        for rule in RULES:
            with self.subTest(rule=rule.id):
                self.assertLessEqual(_most_steps(parser.parse(rule.pattern.pattern)), 30_000)

    def test_a_text_without_keywords_costs_no_attempt_at_a_pattern(self) -> None:
        text = "The quick brown fox jumps over the lazy dog; nothing here is hidden. " * 1000
        self.assertEqual([detector._places(text) for detector in DETECTORS], [[], []])

    def test_attempts_grow_with_the_text_and_no_faster(self) -> None:
        for unit in ("token=", "eyJ", "-----BEGIN PRIVATE KEY-----", "://a:", "sk-proj-", "<private", "password='x"):
            few, many = (sum(len(d._places(unit * n)) for d in DETECTORS) for n in (100, 1000))
            self.assertLessEqual(many, 11 * few + 20, unit)


def _most_steps(pattern: Any) -> int:
    """Return the longest stretch a pattern can read; refuse what is unbounded, looks around or refers back."""
    longest = 0
    for operation, argument in pattern:
        if operation in (constants.ASSERT, constants.ASSERT_NOT, constants.GROUPREF, constants.GROUPREF_EXISTS):
            raise AssertionError(f"{operation} is not portable")
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            if argument[1] == constants.MAXREPEAT:
                raise AssertionError("a repeat without bound")
            longest += argument[1] * _most_steps(argument[2])
        elif operation is constants.SUBPATTERN:
            longest += _most_steps(argument[3])
        elif operation is constants.BRANCH:
            longest += max(_most_steps(branch) for branch in argument[1])
        else:
            longest += 1
    return longest
