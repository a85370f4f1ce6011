from __future__ import annotations

import re
from html import unescape

from django.test import SimpleTestCase
from hypothesis import given
from hypothesis import strategies as st

from memories.admin.comparing import side_by_side, word_diff
from memories.admin.rendering import MAX_RENDERED, render

ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](https://evil.example/pixel.png)",
    "[click](javascript:alert(1))",
    "[click](data:text/html;base64,PHNjcmlwdD4=)",
    "[click](/p/alpha/admin/logout/)",
    "[click](//evil.example/)",
    '[x](https://a.example "\\" onmouseover=alert(1) x=\\"")',
    "[a]: javascript:alert(1)\n\n[a]",
    '<https://a.example/"onclick=alert(1)>',
    "```html\n</code></pre><script>alert(1)</script>\n```",
    "`<script>`",
    "| <script> |\n|---|\n| <b onclick=x> |",
    '[REDACTED:x"><script>]',
]
_TAGS = {
    "p", "a", "code", "pre", "table", "thead", "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6", "mark",
    "strong", "em", "s", "ul", "ol", "li", "blockquote", "hr", "br",
}  # fmt: skip
_ATTRIBUTE = re.compile(r'\s(href|rel|title|class|start|tabindex)="[^"<>]*"')


def assert_harmless(case: SimpleTestCase, html: str) -> None:
    for tag in re.findall(r"<[^>]*>", html):
        name = re.match(r"</?([a-z0-9]+)", tag)
        case.assertTrue(name and name[1] in _TAGS, tag)
        case.assertRegex(_ATTRIBUTE.sub("", tag), r"^</?[a-z0-9]+( /)?/?>$", tag)
        for link in re.findall(r'href="([^"]*)"', tag):
            case.assertRegex(unescape(link), r"^(https?://|mailto:)")


class RenderingTests(SimpleTestCase):
    def test_no_attack_leaves_more_than_text(self) -> None:
        for attack in ATTACKS:
            with self.subTest(attack):
                assert_harmless(self, render(attack))

    @given(st.text(alphabet="<>\"'&[]()!`*_#|-:/\\ \njavscriptREDACTED:=x1", max_size=120))
    def test_no_text_makes_other_tags_than_those_of_markdown(self, text: str) -> None:
        assert_harmless(self, render(text))

    def test_markdown_is_readable_redactions_are_marked_and_a_very_long_text_is_shown_as_it_is(self) -> None:
        html = render("# A\n\n- one\n- [two](https://a.example)\n\n| x | y |\n|---|---|\n| 1 | 2 |")
        for part in ("<h1>A</h1>", "<li>one</li>", 'href="https://a.example"', "noopener", "<td>1</td>"):
            self.assertIn(part, html)
        for tag, shown in (("aws-key", "aws-key redacted"), ("aws-key:3f2a", "aws-key redacted · 3f2a")):
            self.assertIn(f'<mark class="redacted">{shown}</mark>', render(f"the key [REDACTED:{tag}] is gone"))
        long = render("<b>" + "x" * MAX_RENDERED)
        self.assertTrue(long.startswith('<pre class="plain" tabindex="0">&lt;b&gt;x'))


class DiffTests(SimpleTestCase):
    @given(st.text(alphabet="ab <&.", max_size=40), st.text(alphabet="ab <&.", max_size=40))
    def test_both_texts_can_be_read_from_a_diff_of_one_line(self, before: str, after: str) -> None:
        html = word_diff(before, after)
        if before == after:
            return
        seen = re.sub(r'<span class="visually-hidden">.*?</span>', "", html)
        old = unescape(re.sub(r"</?del>", "", re.sub(r"<ins>.*?</ins>", "", seen)))
        new = unescape(re.sub(r"</?ins>", "", re.sub(r"<del>.*?</del>", "", seen)))
        self.assertEqual((old, new), (before, after))

    def test_side_by_side_each_text_is_whole_and_only_its_own_part_is_marked(self) -> None:
        first, second = side_by_side("take the red one", "take the blue one")
        self.assertEqual(("<del>" in first, "blue" in first), (True, False))
        self.assertEqual(("<ins>" in second, "red" in second), (True, False))

    def test_far_lines_are_left_out_and_counted(self) -> None:
        lines = [f"line {number}\n" for number in range(40)]
        html = word_diff("".join(lines), "".join([*lines[:20], "another\n", *lines[21:]]))
        for text in ("18 unchanged lines", "17 unchanged lines", "line 19\n"):
            self.assertIn(text, html)
        self.assertNotIn("line 3\n", html)

    def test_tags_in_a_text_are_text_and_a_passage_too_long_to_compare_is_shown_whole(self) -> None:
        self.assertNotIn("<script", word_diff("a <script>x</script>", "b <script>y</script>"))
        html = word_diff("a " * 3_000, "b " * 3_000)
        self.assertEqual((html.count("<del>"), html.count("<ins>")), (1, 1))
