"""Measuring how well secrets are found."""

from __future__ import annotations

import gzip
import json
import tempfile
from io import StringIO
from pathlib import Path
from unittest import mock

from django.core.management import CommandError, call_command
from django.test import SimpleTestCase

from benchmarks.quality.command import Command
from benchmarks.quality.secrets import clean_texts, rivals, run
from benchmarks.quality.secrets.adversarial import SIZE, adversarial_texts
from benchmarks.quality.secrets.clean_texts import CleanTexts
from benchmarks.quality.secrets.measures import is_gone, mistakes_of, recall_of
from benchmarks.quality.secrets.rivals import Rival
from benchmarks.quality.secrets.samples import Sample, bare_tokens, escaped
from tests.core.test_sanitize import BODY, TOKENS

TOKEN = TOKENS["npm-token"]
CLEAN = [CleanTexts("words", {"a": "nothing to see " * 40})]


def sample(text: str, secret: str | None) -> dict[str, str | None]:
    return {"text": text, "secret": secret, "type": "npm", "source": "made" if secret else "made-clean"}


class MeasureTests(SimpleTestCase):
    RIVAL = Rival("x", "X", lambda text: [(0, 3)] if text.startswith("abc") else [])

    def test_a_secret_is_found_where_nothing_of_it_is_left_whole(self):
        secret = Sample("say abcdef twice: abcdef", "abcdef", "", "")
        self.assertTrue(is_gone(secret, [(4, 10), (19, 23)]))
        self.assertFalse(is_gone(secret, [(4, 10)]))

    def test_recall_counts_by_source_and_type_and_what_is_flagged_apart(self):
        found = recall_of(
            self.RIVAL, [Sample("abc", "abc", "t", "s"), Sample("xabc", "abc", "t", "s"), Sample("abc", None, "t", "c")]
        )
        self.assertEqual((found.by_source["s"].share, found.by_type["t"].all, found.flagged["c"].share), (0.5, 2, 1.0))

    def test_mistakes_are_counted_by_kind_of_text(self):
        (found,) = mistakes_of(self.RIVAL, [CleanTexts("k", {"a": "abc", "b": "no", "c": "abc"})])
        self.assertEqual((found.findings, found.files), (2, 3))

    def test_tokens_are_put_bare_into_prose_and_escaped_as_json_does(self):
        given = [Sample("x", TOKEN, "", ""), Sample("x", "no prefix", "", ""), Sample('a "q" b', '"q"', "", "")]
        self.assertEqual([sample.secret for sample in bare_tokens(given)], [TOKEN])
        self.assertIn('\\"q\\"', escaped(given[2]).text)
        self.assertEqual(escaped(given[2]).secret, '\\"q\\"')

    def test_this_machine_has_clean_texts_of_several_kinds(self):
        kinds = clean_texts.clean_texts(20_000)
        self.assertGreaterEqual(len(kinds), 4)
        self.assertTrue(all(0 < kind.megabytes < 0.1 for kind in kinds))

    def test_texts_made_to_be_slow_are_a_megabyte_each(self):
        self.assertTrue(all(SIZE - 10 <= len(text) <= SIZE for text in adversarial_texts().values()))


class RivalTests(SimpleTestCase):
    def test_the_rules_of_gitleaks_run_as_they_are_in_pythons_engine(self):
        self.assertEqual(len(rivals._naive_rules()), 221)
        self.assertEqual(rivals._gitleaks(f"key ghp_{BODY[:36]} "), [(4, 44)])

    def test_flags_in_the_middle_of_a_pattern_hold_to_the_end_of_their_group(self):
        self.assertEqual(rivals._for_python(r"a(b(?i)c[)]d)e\z"), r"a(b(?i:c[)]d))e\Z")
        self.assertEqual(rivals._for_python("(?i)a"), "(?i)a")

    def test_the_own_rules_alone_find_by_structure_and_by_name(self):
        self.assertEqual(rivals._own("é password=hunter2x9"), [(11, 20)])

    def test_detect_secrets_is_asked_only_where_it_is_installed(self):
        with mock.patch.object(rivals, "has_detect_secrets", return_value=False):
            self.assertNotIn("detect-secrets", [rival.key for rival in rivals.rivals()])


class CommandTests(SimpleTestCase):
    def test_it_prints_figures_beside_goals_and_writes_json(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        lines = [sample(f"key {TOKEN}", TOKEN), sample("plain words", None), sample("x hidden", "hidden")]
        (folder / "s.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
        out = StringIO()
        with (
            mock.patch.object(run, "clean_texts", return_value=CLEAN),
            mock.patch.object(run, "adversarial_texts", return_value={"x": "x" * 100}),
        ):
            call_command(Command(), secrets=folder / "s.jsonl.gz", json=folder / "e.json", stdout=out)
        self.assertIn("Secrets: 3 labelled texts", out.getvalue())
        self.assertIn("secrets found", out.getvalue())
        data = json.loads((folder / "e.json").read_text())
        self.assertEqual([goal["verdict"] for goal in data["goals"]][:4], ["MISSED", "goal", "goal", "goal"])
        self.assertEqual(data["rivals"][0]["by_source"]["made"], {"found": 1, "all": 2})

    def test_a_file_without_labelled_texts_is_refused(self):
        with self.assertRaisesRegex(CommandError, "holds no labelled texts"):
            call_command(Command(), secrets=Path("nowhere.gz"), stdout=StringIO())
