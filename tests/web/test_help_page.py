"""The documentation inside the hub, and the link from a page to its guide."""

from __future__ import annotations

import posixpath
import re

from django.test import SimpleTestCase

from memoryhub.web.help_page import DOCS, GUIDES
from tests.permissions.base import ADMIN, PermissionTestCase
from tests.test_docs import anchors


class HelpPageTests(SimpleTestCase):
    def test_every_document_is_shown_and_its_links_work(self) -> None:
        for path in DOCS.rglob("*.md"):
            address = f"/help/{path.relative_to(DOCS)}"
            response = self.client.get(address)
            self.assertContains(response, '<article class="card prose help-page">')
            article = response.content.decode().partition("<article")[2]
            for link in re.findall(r'(?:href|src)="(?!https?:|#)([^"#]+)', article):
                linked = posixpath.join(posixpath.dirname(address), link)
                with self.subTest(page=address, link=link):
                    self.assertEqual(self.client.get(posixpath.normpath(linked)).status_code, 200)

    def test_every_guide_and_its_section_exist(self) -> None:
        for guide in GUIDES.values():
            page, _, anchor = guide.partition("#")
            self.assertTrue(not anchor or anchor in anchors(DOCS / page), guide)
            self.assertContains(self.client.get(f"/help/{page}"), f'id="{anchor}"' if anchor else "<h1")

    def test_nothing_outside_the_documentation_is_shown(self) -> None:
        for path in ("../README.md", "%2e%2e/manage.py", "/etc/passwd", "guides/none.md"):
            self.assertEqual(self.client.get(f"/help/{path}").status_code, 404, path)


class HelpLinkTests(PermissionTestCase):
    def test_a_page_links_to_its_guide(self) -> None:
        pages = {
            f"{ADMIN}memories/memory/review/": "guides/review.md",
            f"{ADMIN}governance/affirmation/": "guides/recheck.md",
            "/people": "guides/team.md",
        }
        for page, guide in pages.items():
            with self.subTest(page=page):
                response = self.browsers["owner"].get(page)
                self.assertContains(response, f'class="help-link" href="/help/{guide}"', msg_prefix=page)
