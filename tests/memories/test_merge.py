from __future__ import annotations

from django.test import SimpleTestCase
from hypothesis import given
from hypothesis import strategies as st

from memories.diff import merge_texts

texts = st.lists(st.sampled_from(["one two\n", "three\n", "four five six\n", "\n"]), max_size=6).map("".join)


class MergeTests(SimpleTestCase):
    def test_changes_to_different_lines_are_merged(self) -> None:
        base = "first\nsecond\nthird\n"
        merged = merge_texts(base, "1st\nsecond\nthird\n", "first\nsecond\n3rd\n")
        self.assertEqual(merged, "1st\nsecond\n3rd\n")

    def test_changes_to_different_words_of_a_line_are_merged(self) -> None:
        merged = merge_texts("take the red one now\n", "take the blue one now\n", "take the red one later\n")
        self.assertEqual(merged, "take the blue one later\n")

    def test_conflicting_changes_keep_both_lines(self) -> None:
        merged = merge_texts("retry three times\nwait\n", "retry five times\nwait\n", "retry four times\nwait 1 s\n")
        self.assertEqual(merged, "retry five times\nretry four times\nwait 1 s\n")

    def test_without_a_base_both_texts_are_kept(self) -> None:
        self.assertEqual(merge_texts("", "one", "two"), "one\ntwo")

    @given(texts, texts)
    def test_an_unchanged_side_is_ignored(self, base: str, changed: str) -> None:
        self.assertEqual(merge_texts(base, base, changed), changed)
        self.assertEqual(merge_texts(base, changed, base), changed)
        self.assertEqual(merge_texts(base, changed, changed), changed)
