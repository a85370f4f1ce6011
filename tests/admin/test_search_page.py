"""The search page, the pages of context packs, and the use of a memory."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from memories.admin.pack_page import token_bar
from memories.admin.search_page import marked_excerpt, reasons
from memories.models import ContextPack, MemoryUse
from memories.models.search import IGNORED_AFTER
from memories.pack import pack_context, preview_pack
from memories.schemas import MemoryDelete, MemoryGet, MemorySearch
from memories.schemas.query import ContextPackRequest
from memories.selectors import get_memories
from memories.services import delete_memory
from memories.tools.core import search
from memories.uses.drain import count_uses
from memoryhub.core.errors import ConfirmationRequired
from memoryhub.core.models import RawEvent
from memoryhub.core.paging import estimate_tokens
from tests.admin.base import AdminTestCase, text_of
from tests.admin.browser import NAVIGATION, BrowserTestCase

SEARCH, PACKS = "memories/searchdocument/", "memories/contextpack/"


def shown_text(page: str) -> str:
    found = re.search(r'<pre class="plain[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert found
    return found[1]


class SearchPageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.port = self.write("Port of the hub", "It listens on 8321.", tags=["net"])
        self.rule = self.write("Name the port", "Say which it is.", kind="guideline")

    def test_the_answer_is_the_one_that_an_agent_gets_with_its_tokens(self) -> None:
        with self.store("alpha", source="mcp"):
            answer = search(MemorySearch(query="which port")).text
        page = self.page(SEARCH, query="which port")
        self.assertEqual(shown_text(page), answer)
        self.assertIn(f"about {estimate_tokens(answer)} tokens", page)
        self.assertIn("2 of 2 by full text", page)

    def test_filters_are_those_of_the_tool(self) -> None:
        for filters in ({"kind": "guideline"}, {"tags": "net"}, {"source": "decision"}, {"limit": "1"}):
            with self.store("alpha", source="mcp"):
                named = {"tags": ["net"]} if "tags" in filters else filters
                named = {"sources": ["decision"]} if "source" in filters else named
                answer = search(MemorySearch.model_validate({"query": "port", **named})).text
            page = self.page(f"{SEARCH}?{urlencode({'query': 'port', **filters})}")
            self.assertIn(answer.splitlines()[0], page)
            self.assertEqual(page.count("hit-head"), answer.count("\n#") + answer.startswith("#"), filters)

    def test_each_hit_leads_to_its_page_and_the_index_row_to_what_it_stands_for(self) -> None:
        page = self.page(SEARCH, query="8321")
        self.assertIn(f'href="{self.address(f"memories/memory/{self.port}/change/")}">Port of the hub</a>', page)
        answer = self.client.get(self.address(f"{SEARCH}{self.rule}/change/"))
        self.assertRedirects(answer, self.address(f"memories/memory/{self.rule}/change/"))

    def test_looking_is_no_use_and_writes_nothing(self) -> None:
        with self.store("alpha"):
            before = RawEvent.objects.count()
        self.page(SEARCH, query="port")
        self.page(f"{PACKS}now/", query="port")
        with self.store("alpha"):
            count_uses()
            self.assertFalse(MemoryUse.objects.filter(found__gt=0).exists())
            self.assertEqual(RawEvent.objects.count(), before)

    def test_what_cannot_be_asked_is_said_and_nothing_found_too(self) -> None:
        self.assertIn("Enter a whole number", self.page(SEARCH, query="port", limit="many"))
        self.assertIn("nothing found; try fewer or other words", self.page(SEARCH, query="zebra"))
        self.assertIn("No search yet", self.page(SEARCH, query="  "))
        self.assertIn("No session is open here", self.page(SEARCH, query="port", scope="session"))

    def test_the_index_says_how_it_stands(self) -> None:
        shown = text_of(self.page(SEARCH))
        self.assertIn("Documents 2 2 memories Words Full text", shown)
        self.assertIn("Documents 0 none yet", text_of(self.page(SEARCH, "beta")))

    def test_beta_sees_nothing_and_more_hits_cost_no_more_queries(self) -> None:
        self.assertIn("No results.", self.page(SEARCH, "beta", query="port"))
        few = self.queries_of(f"{SEARCH}?query=port")
        for number in range(8):
            self.write(f"Port {number}", f"Port number {number} is another.")
        self.assertEqual(self.queries_of(f"{SEARCH}?query=port"), few)

    def test_why_a_hit_ranks_and_what_matched_are_marked_and_escaped(self) -> None:
        marks = reasons("port, <b>; session ×1.8; expired ×0.5")
        self.assertIn("port, &lt;b&gt;", marks)
        self.assertRegex(marks, r"badge-raised[^>]*>session ×1\.8<.*badge-lowered[^>]*>expired ×0\.5<")
        self.assertEqual(marked_excerpt("a <b> port.", [(6, 10)]), "a &lt;b&gt; <mark>port</mark>.")


class PackPageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in range(30):
            self.write(f"Filler {number}", f"All about filler {number}. " * 9)
        self.secret = self.write("Port of the hub", "It listens on 8321.")

    def send(self, **fields: Any) -> int:
        with self.store("alpha", source="mcp", session_id="s-1"):
            return pack_context(command=ContextPackRequest.model_validate(fields)).id

    def test_the_text_is_what_would_be_sent_next(self) -> None:
        page = self.page(f"{PACKS}now/", query="which port", max_tokens="400")
        with self.store("alpha", source="mcp"):
            sent = pack_context(command=ContextPackRequest(query="which port", max_tokens=400))
        self.assertEqual(shown_text(page), sent.text)

    def test_the_bar_adds_up_to_the_text_and_says_what_was_left_out(self) -> None:
        with self.store("alpha"):
            pack = preview_pack(command=ContextPackRequest(max_tokens=600))
        bar = token_bar(pack, 600)
        self.assertEqual(sum(part.tokens for part in bar.parts), estimate_tokens(pack.text))
        self.assertEqual(bar.used + bar.free.tokens, 600)
        (facts,) = (part for part in bar.parts if part.name == "facts")
        self.assertEqual(facts.items + facts.left_out, 31)
        self.assertIn(f"{facts.left_out} memory_search", text_of(self.page(f"{PACKS}now/", max_tokens="600")))

    def test_a_budget_that_cannot_be_is_refused_and_an_empty_store_tells_nothing(self) -> None:
        self.assertIn("greater than or equal to 200", self.page(f"{PACKS}now/", max_tokens="5"))
        self.assertIn("The pack is empty.", self.page(f"{PACKS}now/", "beta"))
        self.assertIn("No packs sent yet", self.page(PACKS, "beta"))

    def test_packs_sent_are_listed_by_a_fixed_number_of_queries(self) -> None:
        first = self.send()
        few = self.queries_of(PACKS)
        second = self.send(query="port")
        self.assertEqual((self.listed(PACKS), self.queries_of(PACKS)), ([second, first], few))
        self.assertIn("latest changes", self.page(PACKS))

    def test_a_pack_is_made_again_as_it_was_sent_until_something_of_it_is_erased(self) -> None:
        pack = self.send(query="which port")
        self.write("Another port", "It listens on 9999.")
        page = self.page(f"{PACKS}{pack}/change/")
        self.assertIn("8321", shown_text(page))
        self.assertNotIn("9999", shown_text(page))
        self.assertIn(">Verified</span>", page)
        self.erase(self.secret)
        page = self.page(f"{PACKS}{pack}/change/")
        # The pack's digest depends on the day, and has had these digits
        self.assertNotIn("8321", re.sub(r"\b[0-9a-f]{64}\b", "", page))
        self.assertIn(">1 line erased since</span>", page)
        self.assertIn("All other lines are as they were sent", page)

    def erase(self, memory_id: int) -> None:
        with self.store("alpha"):
            delete_memory(command=MemoryDelete(id=memory_id))
            with self.assertRaises(ConfirmationRequired) as asked:
                delete_memory(command=MemoryDelete(id=memory_id, permanent=True))
            token = asked.exception.data["confirm_token"]
            delete_memory(command=MemoryDelete(id=memory_id, permanent=True, confirm_token=token))

    def test_two_packs_are_compared_the_earlier_one_first(self) -> None:
        first = self.send()
        new = self.write("Newest", "Fresh from the oven.")
        second = self.send()
        page = self.page(f"{PACKS}{second}/compare/?with={first}")
        self.assertIn(f"Pack #{first} → #{second}", page)
        self.assertIn(f"<ins>#{new}</ins>", page)
        self.assertRegex(page, r"<ins>[^\n]*Fresh from the oven")
        self.page(f"{PACKS}{second}/compare/?with=nothing", status=404)

    def test_beta_has_no_pack_of_alphas(self) -> None:
        self.page(f"{PACKS}{self.send()}/change/", "beta", status=404)
        with self.store("beta"):
            self.assertFalse(ContextPack.objects.exists())


class UsePageTests(AdminTestCase):
    def test_a_memorys_page_says_what_became_of_it_and_what_names_it(self) -> None:
        cited = self.write("Port of the hub")
        citing = self.write("Proxy", f"Leads to #{cited}.")
        with self.store("alpha", source="mcp"):
            pack_context(command=ContextPackRequest())
            get_memories(command=MemoryGet(ids=[cited]))
            count_uses()
        shown = text_of(self.page(f"memories/memory/{cited}/change/"))
        self.assertIn("In packs 1× In searches 0× Read 1× by id or name Cited 1×", shown)
        self.assertIn(f"memory #{citing}", shown)

    def test_lists_show_what_was_ignored_used_or_never_given(self) -> None:
        used, ignored = self.write("Port of the hub", "8321"), self.write("Colour of the logo", "teal")
        with self.store("alpha", source="mcp"):
            for number in range(IGNORED_AFTER):
                pack_context(command=ContextPackRequest(session_id=f"s-{number}"))
            get_memories(command=MemoryGet(ids=[used]))
            count_uses()
        never = self.write("Written since", "and never given")
        chosen = {choice: self.memories(use=choice) for choice in ("ignored", "used", "never")}
        self.assertEqual(chosen, {"ignored": [ignored], "used": [used], "never": [never]})


class SearchPageBrowserTests(BrowserTestCase):
    def test_a_person_asks_reads_the_answer_and_the_pack_on_a_telephone(self) -> None:
        for title in ("Port of the hub", "x" * 180):
            self.rest("POST", f"projects/{self.project}/memories", {"title": title, "content": f"{title} 8321"})
        self.narrow()
        self.open(SEARCH)
        self.find("#id_query").send_keys("8321")
        self.follow("Search", within="main//form")
        self.see("#1 note", within=".verbatim")
        self.see("2 of 2", within=".ranked")
        width = "return document.documentElement.scrollWidth <= window.innerWidth"
        self.assertTrue(self.script(width))
        self.find(".nav-open").click()
        self.follow("Context packs", within=NAVIGATION)
        self.see("Port of the hub", within=".pack-text")
        self.assertTrue(self.script(width))
        self.assertGreater(self.script("return document.querySelectorAll('.pack-bar > svg .part').length"), 1)
