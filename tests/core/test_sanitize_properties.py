from __future__ import annotations

import ast
import hashlib
import json
import re
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin
from unittest import TestCase, mock

from hypothesis import Phase, example, find, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo

from memories import services
from memories.schemas import MemoryWrite
from memoryhub.core import log, schemas
from memoryhub.core.events.event_types import EventType, event_type, event_types
from memoryhub.core.log.digests import canonical_json, payload_digest
from memoryhub.core.log.erase import StreamName
from memoryhub.core.models import RawEvent
from memoryhub.core.schemas import Generated
from memoryhub.core.secrets import sanitize as sanitizing
from memoryhub.core.secrets.assignment import ColumnRead, cells_below
from memoryhub.core.secrets.catalogue import CustomRule, compile_rules, detector, lines
from memoryhub.core.secrets.checks import CHECKS
from memoryhub.core.secrets.context import use_rules
from memoryhub.core.secrets.engine import VALUE_CHECKS
from memoryhub.core.secrets.rule import KeywordIndex, Rule, RuleForm, compiled
from memoryhub.core.secrets.sanitize import GENERATED, payload_shape, sanitize, sanitize_text
from tests.core.test_sanitize import BODY, TOKENS
from tests.support import HubTestCase

_PIECES = (
    'ghp_ <private> </private> <pri vate> <private > < / password= " \\ :// a: @ [REDACTED: secret] ] hunter2x9 '
    "İ eyJ . x é sk- aws_secret= -us1 Q~ q2w3e4r5 kX3vR9pLm2Qw7TzB4nYs8HcJ5dFg Falcon4821!x 密码是 sessionid= ** &a="
).split()
_SPACED = ("token: |Bearer |API key - | → |пароль: |creds: ann / | as the password| |\n|\x00|\ud800").split("|")
_KEYS = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "| ", BODY[:36])
fragments = st.sampled_from([*TOKENS.values(), *_PIECES, *_SPACED, *_KEYS])
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
        rules = [Rule(word, "x", RuleForm.AT, (word.encode(),), any_case=word.islower()) for word in sorted(words)]
        expected = []
        for place in range(len(text)):
            rest = {True: text[place:].lower(), False: text[place:]}
            begins = {(rule.id, len(rule.id)) for rule in rules if rest[rule.any_case].startswith(rule.id)}
            if begins:
                expected.append((place, begins))
        places = KeywordIndex(rules).of(text.encode())
        self.assertEqual([(place, {(rule.id, size) for rule, size in found}) for place, found in places], expected)


class RulesTest(TestCase):
    RULES = detector().rules

    def test_names_are_unique_and_types_fit_a_tag(self) -> None:
        self.assertGreaterEqual(len(self.RULES), 300)
        self.assertEqual(len({rule.id for rule in self.RULES}), len(self.RULES))
        for rule in self.RULES:
            with self.subTest(rule=rule.id):
                self.assertRegex(rule.type, r"^[a-z0-9-]{1,40}$")
                self.assertEqual(bool(rule.keywords), rule.form is not RuleForm.ALL)
                plain = [word for word in rule.keywords if word.isascii() and b"\\" not in word]
                self.assertTrue(not rule.any_case or all(word.lower() == word for word in plain))
                self.assertLessEqual(set(rule.checks), {*CHECKS, *VALUE_CHECKS})
                self.assertTrue(rule.pattern or set(rule.checks) & set(VALUE_CHECKS))

    def test_re2_takes_every_pattern(self) -> None:
        for rule in self.RULES:
            for pattern in filter(None, (rule.pattern, rule.name)):
                with self.subTest(rule=rule.id):
                    search = compiled(pattern)
                    if pattern == rule.pattern:
                        self.assertIsNone(search.find(b"", 0, 0))

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
        for file in Path(sanitizing.__file__).parent.glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    names = [*(alias.name for alias in node.names), getattr(node, "module", "")]
                    self.assertNotIn("re", names, file)

    def test_a_text_without_keywords_costs_no_attempt_at_a_pattern(self) -> None:
        text = b"The quick brown fox jumps over the lazy dog; nothing here is hidden. " * 1000
        self.assertEqual(detector().keywords.of(text), [])

    def test_places_grow_with_the_text_and_no_faster(self) -> None:
        for unit in (b"token=", b"eyJ", b"-----BEGIN PRIVATE KEY-----", b"://a:", b"sk-proj-", b"password='x"):
            few, many = (len(detector().keywords.of(unit * n)) for n in (100, 1000))
            self.assertLessEqual(many, 11 * few + 20, unit)

    def test_the_rows_below_a_name_are_read_once(self) -> None:
        for unit in ("token,a\n", "token,token,token\n", "| token | a |\n|---|---|\n", "token,a\n----\n"):
            data, read = unit.encode() * 500, dict[int, ColumnRead]()
            starts = [place for place in range(len(data)) if data.startswith(b"token", place)]
            cells = sum(len(list(cells_below(data, start, start + 5, read))) for start in starts)
            self.assertLessEqual(cells, len(starts), unit)


SECRET = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
# What a key of ClickHouse begins with, and one in 65,536 digests.
KEY = "4b1d"
# A project's own rule that finds a secret in every text, time and digest.
EVERYTHING = compile_rules([CustomRule("all", r"[\w:. #-]{4,}")], ())
TYPES = sorted(known.name for known in event_types() if "." in known.name)

DIGEST = KEY + hashlib.sha256(b"a digest").hexdigest()[4:]
# By format, a value that the rules would mask inside a longer word; of other formats, any value.
EXAMPLES = {"[0-9a-f]{64}": DIGEST, "[0-9a-f]{7,40}|[0-9a-f]{64}": DIGEST[:40]}


def schema_of(name: str) -> EventType[Any]:
    found = event_type(name)
    assert found is not None
    return found


def marks_in(schema: type[BaseModel]) -> Iterator[Generated]:
    for field in schema.model_fields.values():
        yield from (mark for mark in field.metadata if isinstance(mark, Generated))
        yield from _marks(field.annotation)


def _marks(annotation: Any) -> Iterator[Generated]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from marks_in(annotation)
    for argument in get_args(annotation):
        if isinstance(argument, Generated):
            yield argument
        else:
            yield from _marks(argument)


# Builds payloads with a secret in every text and valid generated values.
class Maker:
    def __init__(self, generated: dict[str, str]) -> None:
        self._generated = generated

    def payload(self, schema: type[BaseModel]) -> dict[str, Any]:
        made = {}
        for name, field in schema.model_fields.items():
            value = self._of(field.annotation, field.metadata)
            if _fits(field, value):
                made[name] = value
            elif field.is_required():
                raise AssertionError(f"{schema.__name__}.{name} needs a value that this test can make")
        return made

    def _of(self, annotation: Any, metadata: Any = ()) -> Any:
        for mark in metadata:
            if isinstance(mark, Generated):
                return self._generated[mark.pattern]
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self._of(arguments[0], arguments[1:])
        if origin in (Union, types.UnionType):
            return self._of(arguments[0])
        if origin is Literal:
            return arguments[0]
        if origin is dict:
            return {self._of(arguments[0]): self._of(arguments[1])}
        if origin is tuple:
            return [self._of(argument) for argument in arguments]
        if origin is list:
            return [self._of(arguments[0])]
        return self._plain(annotation)

    def _plain(self, annotation: Any) -> Any:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return self.payload(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return next(iter(annotation)).value
        return 5 if annotation is int else False if annotation is bool else f"It is {SECRET}"


_models: dict[int, type[BaseModel]] = {}


def _fits(field: FieldInfo, value: Any) -> bool:
    if id(field) not in _models:
        _models[id(field)] = create_model("One", value=(cast("Any", field.annotation), field))
    try:
        _models[id(field)].model_validate({"value": value})
    except ValidationError:
        return False
    return True


def generated_in(value: Any, shape: Any) -> Iterator[str]:
    if isinstance(value, str) and shape == GENERATED:
        yield value
    if isinstance(value, dict):
        yield from (key for key in value if shape.key(key) is GENERATED.leaf)
        for key, item in value.items():
            yield from generated_in(item, shape.at(key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from generated_in(item, shape.at(index))


def patterns() -> set[str]:
    return {mark.pattern for name in TYPES for mark in marks_in(schema_of(name).schema)}


def prepared(name: str, values: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    schema = schema_of(name).schema
    payload = schema.model_validate(Maker(values).payload(schema))
    return payload.model_dump(mode="json", exclude_unset=True), log.prepare(schema_of(name), payload).data


class GeneratedFieldsTests(TestCase):
    def assert_kept(self, name: str, values: dict[str, str]) -> None:
        before, after = prepared(name, values)
        shape = payload_shape(schema_of(name).schema)
        self.assertEqual(list(generated_in(after, shape)), list(generated_in(before, shape)), name)
        self.assertNotIn(SECRET, json.dumps(after), name)

    def test_of_all_types_of_events_they_survive_and_the_texts_beside_them_are_sanitised(self):
        self.assertTrue(sanitize_text(f"{DIGEST}z")[1], "the example must look like a secret")
        values = {pattern: EXAMPLES.get(pattern) or _example(pattern) for pattern in patterns()}
        for name in TYPES:
            with self.subTest(type=name):
                self.assert_kept(name, values)

    @settings(max_examples=200, deadline=None)
    @given(st.data())
    def test_whatever_value_of_its_format_it_has_a_rule_that_finds_everything_leaves_it(self, data: Any):
        name = data.draw(st.sampled_from([name for name in TYPES if list(marks_in(schema_of(name).schema))]))
        values = {mark.pattern: data.draw(_values_of(mark.pattern)) for mark in marks_in(schema_of(name).schema)}
        with use_rules(EVERYTHING):
            self.assert_kept(name, values)

    def test_a_text_without_a_mark_is_masked_by_that_rule(self):
        with use_rules(EVERYTHING):
            payload = prepared("phase.completed", {})[1]
            self.assertEqual(set(payload.values()), {"[REDACTED:secret]"})

    def test_every_field_that_a_digest_or_hash_is_kept_in_is_marked(self):
        named = re.compile(r"digest|hash|sha$|fingerprint|_at$|cutoff")
        for name in TYPES:
            for field, info in schema_of(name).schema.model_fields.items():
                if named.search(field):
                    marks = [*_marks(info.annotation), *(mark for mark in info.metadata if isinstance(mark, Generated))]
                    self.assertTrue(marks, f"{name}.{field}")

    def test_no_text_gets_past_the_sanitiser_in_one_of_them(self):
        texts = [SECRET, f"{DIGEST} {SECRET}", DIGEST[:-1] + "g", f"{DIGEST}\n", f"{DIGEST}0", "password=hunter22", " "]
        marks = {mark for name in TYPES for mark in marks_in(schema_of(name).schema)}
        for mark in marks - {get_args(StreamName)[1]}:
            for text in texts:
                with self.subTest(mark=mark.name, text=text), self.assertRaisesRegex(ValidationError, mark.name):
                    TypeAdapter(Annotated[str, mark]).validate_python(text)

    def test_a_masked_digest_of_an_earlier_version_is_still_read(self):
        stored = '{"digests": {"4": "[REDACTED:clickhouse-cloud-api-secret-key:1a2b]"}, "what": "a text"}'
        read = schema_of("payload.redacted").schema.model_validate_json(stored, context=schemas.STORED)
        self.assertIn("REDACTED", read.digests[4])


class GeneratedFieldsInAStoreTests(HubTestCase):
    def test_only_streams_of_the_log_are_named_in_an_erasure(self):
        with self.store("alpha"):
            memory = services.write_memory(command=MemoryWrite(title="One", content="Two")).id
            erased = log.erase_streams([f"memory:{memory}", f"session:{SECRET}"], reason="asked for")
            self.assertEqual(erased.payload.streams, [f"memory:{memory}"])

    def test_a_redaction_whose_new_digest_looks_like_a_key_still_verifies(self):
        with self.store("alpha"):
            memory = services.write_memory(command=MemoryWrite(title="Tank", content="It is quicksilverish.")).id
            left = json.loads(RawEvent.objects.get(position=memory).payload_json) | {"content": "It is gone."}
            salt = _salt_for(canonical_json(left))
            with mock.patch("memoryhub.core.ids.random_bytes", lambda count: salt[-count:]):
                log.redact_payloads({memory: left}, what="a word")
            self.assertTrue(log.verify().ok, log.verify())
            self.assertTrue(log.rebuild().identical)


def _salt_for(text: str) -> bytes:
    """Return a salt with which the text's digest begins like a key."""
    return next(
        salt for number in range(2**24) if payload_digest((salt := number.to_bytes(16)).hex(), text).startswith(KEY)
    )


def _values_of(pattern: str) -> st.SearchStrategy[str]:
    return st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True)


def _example(pattern: str) -> str:
    return find(_values_of(pattern), bool, settings=settings(phases=[Phase.generate], database=None))
