"""The search page, the pages of context packs, and the use of a memory."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from memories.admin.listing import marked_excerpt
from memories.admin.pack_page import token_bar
from memories.admin.search_page import reasons
from memories.models import IGNORED_AFTER, MemoryUse
from memories.pack import pack_context, preview_pack
from memories.schemas import MemoryGet, MemorySearch, MemoryWrite
from memories.schemas.query import ContextPackRequest
from memories.selectors import get_memories
from memories.services import write_memories
from memories.tools import search
from memories.uses.drain import count_uses
from memoryhub.core import clock
from memoryhub.core.models import RawEvent
from memoryhub.core.paging import estimate_tokens
from tests.admin.base import AdminTestCase, text_of
from tests.memories.base import erase_deleted

SEARCH, PACKS = "memories/searchdocument/", "memories/contextpack/"


def shown_text(page: str) -> str:
    (text,) = re.findall(r'<pre class="plain[^>]*>(.*?)</pre>', page, re.DOTALL)
    return str(text)


class SearchPageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.port = self.write("Port of the hub", "It listens on 8321.", tags=["net"])
        self.rule = self.write("Name the port", "Say which it is.", kind="guideline")

    def test_answer_and_filters_are_those_of_the_tool(self) -> None:
        cases: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
            ({}, {}),
            ({"kind": "guideline"}, {"kind": "guideline"}),
            ({"tags": "net"}, {"tags": ["net"]}),
            ({"source": "decision"}, {"sources": ["decision"]}),
            ({"limit": "1"}, {"limit": 1}),
        )
        for fields, filters in cases:
            with self.store("alpha", source="mcp"):
                answer = search(MemorySearch.model_validate({"query": "port", **filters})).text
            page = self.page(SEARCH, query="port", **fields)
            self.assert_shows(page, answer.splitlines()[0])
            self.assertEqual(page.count("hit-head"), answer.count("\n#") + answer.startswith("#"), fields)
            if not fields:
                self.assertEqual(shown_text(page), answer)
                self.assert_shows(
                    page, f"about {estimate_tokens(answer)} tokens", "2 of 2 by words", "By words alone: "
                )

    def test_a_day_is_that_of_the_viewers_zone(self) -> None:
        with clock.frozen(datetime(2026, 11, 20, 22, 30, tzinfo=UTC)):
            self.write("Mole", "The mole is at the western berth.")
        self.assert_shows(self.page(SEARCH, query="mole", since="2026-11-21"), "nothing found")
        self.client.cookies["hub_time_zone"] = "Asia/Tokyo"
        self.assert_shows(self.page(SEARCH, query="mole", since="2026-11-21"), "memory 2026-11-21 Mole")

    def test_each_hit_leads_to_its_page_and_the_index_row_to_what_it_stands_for(self) -> None:
        page = self.page(SEARCH, query="8321")
        self.assert_shows(page, f'href="{self.address(f"memories/memory/{self.port}/change/")}">Port of the hub</a>')
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

    def test_what_cannot_be_asked_is_said_and_nothing_found_and_how_the_index_stands_too(self) -> None:
        self.assert_shows(self.page(SEARCH, query="port", limit="many"), "Enter a whole number")
        self.assert_shows(self.page(SEARCH, query="zebra"), "nothing found; try fewer or other words")
        about_nothing = self.page(SEARCH, query="which port has the Kubernetes ingress controller")
        self.assert_shows(about_nothing, "Nothing stored is about this; these are only the nearest.</p>", "hit-head")
        self.assertNotIn("only the nearest", self.page(SEARCH, query="port of the hub"))
        self.assert_shows(self.page(SEARCH, query="  "), "No search yet")
        self.assert_shows(self.page(SEARCH, "beta", query="port"), "No results.")
        self.assert_shows(self.page(SEARCH, query="port", scope="session"), "No session is open here")
        self.assert_shows(text_of(self.page(SEARCH)), "Documents 2 2 memories Words Full text")
        self.assert_shows(text_of(self.page(SEARCH, "beta")), "Documents 0 none yet")

    def test_why_a_hit_ranks_and_what_matched_are_marked_and_escaped(self) -> None:
        marks = reasons("port, <b>; session ×1.8; expired ×0.5")
        self.assert_shows(marks, "port, &lt;b&gt;")
        self.assertRegex(marks, r"badge-raised[^>]*>session ×1\.8<.*badge-lowered[^>]*>expired ×0\.5<")
        self.assertEqual(marked_excerpt("a <b> port.", [(6, 10)]), "a &lt;b&gt; <mark>port</mark>.")


class PackPageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        fillers = [MemoryWrite(title=f"Filler {n}", content=f"All about filler {n}. " * 9) for n in range(30)]
        with self.store(actor="agent", source="mcp"):
            write_memories(commands=fillers)
        self.secret = self.write("Port of the hub", "It listens on 8321.")

    def send(self, **fields: Any) -> int:
        with self.store("alpha", source="mcp", session_id="s-1"):
            return pack_context(command=ContextPackRequest.model_validate(fields)).id

    def test_the_text_is_what_would_be_sent_next(self) -> None:
        page = self.page(f"{PACKS}now/", query="which port", max_tokens="400")
        with self.store("alpha", source="mcp"):
            sent = pack_context(command=ContextPackRequest(query="which port", max_tokens=400))
        self.assertEqual(shown_text(page), sent.text)
        self.assert_shows(self.page(f"{PACKS}now/", max_tokens="5"), "greater than or equal to 200")
        self.assert_shows(self.page(f"{PACKS}now/", "beta"), "The pack is empty.")
        self.assert_shows(self.page(PACKS, "beta"), "No packs sent yet")

    def test_the_bar_adds_up_to_the_text_and_says_what_was_left_out(self) -> None:
        with self.store("alpha"):
            pack = preview_pack(command=ContextPackRequest(max_tokens=600))
        bar = token_bar(pack, 600)
        self.assertEqual(sum(part.tokens for part in bar.parts), estimate_tokens(pack.text))
        self.assertEqual(bar.used + bar.free.tokens, 600)
        (facts,) = (part for part in bar.parts if part.name == "facts")
        self.assertEqual(facts.items + facts.left_out, 31)
        self.assert_shows(text_of(self.page(f"{PACKS}now/", max_tokens="600")), f"{facts.left_out} memory_search")

    def test_a_pack_is_made_again_as_it_was_sent_until_something_of_it_is_erased(self) -> None:
        pack = self.send(query="which port")
        self.write("Another port", "It listens on 9999.")
        page = self.page(f"{PACKS}{pack}/change/")
        self.assert_shows(shown_text(page), "8321", lacks=("9999",))
        self.assert_shows(page, ">Verified</span>")
        self.delete(self.secret)
        with self.store("alpha"):
            erase_deleted(self.secret)
        page = self.page(f"{PACKS}{pack}/change/")
        # The pack's digest depends on the day, and has had these digits
        self.assert_lacks(re.sub(r"\b[0-9a-f]{64}\b", "", page), "8321")
        self.assert_shows(page, ">1 line erased since</span>", "All other lines are as they were sent")

    def test_packs_sent_are_listed_and_compared_the_earlier_one_first(self) -> None:
        first = self.send()
        new = self.write("Newest", "Fresh from the oven.")
        second = self.send()
        self.assertEqual(self.listed(PACKS), [second, first])
        self.assert_shows(self.page(PACKS), "latest changes")
        page = self.page(f"{PACKS}{second}/compare/?with={first}")
        self.assert_shows(page, f"Pack #{first} → #{second}", f"<ins>#{new}</ins>")
        self.assertRegex(page, r"<ins>[^\n]*Fresh from the oven")
        self.page(f"{PACKS}{second}/compare/?with=nothing", status=404)
        self.page(f"{PACKS}{second}/change/", "beta", status=404)


class UsePageTests(AdminTestCase):
    def test_a_memorys_page_says_what_became_of_it_and_what_names_it(self) -> None:
        cited = self.write("Port of the hub")
        citing = self.write("Proxy", f"Leads to #{cited}.")
        with self.store("alpha", source="mcp"):
            pack_context(command=ContextPackRequest())
            get_memories(command=MemoryGet(ids=[cited]))
            count_uses()
        shown = text_of(self.page_of(cited))
        self.assert_shows(shown, "In packs 1× In searches 0× Read 1× by id or name Cited 1×", f"memory #{citing}")

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
