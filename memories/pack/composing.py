"""Choose the lines of a context pack within its budget, and compare two packs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from memories.pack.sections import (
    LEAST_TOKENS,
    FilledSection,
    GatheredSection,
    PackBody,
    PackItem,
    Remarks,
    SectionDefinition,
    all_sections,
    ids_at,
    isolated,
    remarks_on,
)
from memories.pack_sorts import RECHECK_SECTION, SESSION, reference_of
from memories.scopes import Level
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.text import one_line


def compose(gathered: Sequence[GatheredSection], max_tokens: int, *, sent: Mapping[str, str] | None = None) -> PackBody:
    """Return the content within ``max_tokens`` as text, which includes header and footer.

    Each section first gets its share of the budget; what remains is given to all sections in turn.

    Args:
        gathered: the sections with their items.
        max_tokens: the budget.
        sent: the marks of an earlier pack, to compose it again; where items of it were erased, no other items come in,
            and no line gets longer.
    """
    budget = max(LEAST_TOKENS, max_tokens - SESSION.frame_tokens)
    drafts: list[_SectionDraft] = []
    texts: set[str] = set()
    for section, items, total in gathered:
        with isolated(section):
            chosen = items if sent is None else _as_sent(section, items, sent)
            draft = _SectionDraft(section, chosen, total, texts)
            budget -= draft.begin(int(budget * section.share), draft.limited(budget))
            drafts.append(draft)
    # One item of each section in turn; the last one is cut to what remains
    waiting = [draft for draft in drafts if draft.chosen and draft.has_next()]
    while waiting:
        for draft in list(waiting):
            cost = draft.take_next(draft.limited(budget))
            budget -= cost
            if not cost or not draft.has_next():
                waiting.remove(draft)
    filled = [draft.filled() for draft in drafts]
    return PackBody([section for section in filled if section.items], any(draft.is_cut for draft in drafts))


def _as_sent(section: SectionDefinition, items: Sequence[PackItem], sent: Mapping[str, str]) -> list[PackItem]:
    sent_items: list[PackItem] = []
    for item in items:
        mark = sent.get(section.key(item))
        if not mark:
            continue
        whole = cut = item.cut(section.longest)
        # The last line of a pack was cut to the budget that remained; an item that has changed stays as it is
        while cut.mark != mark and len(cut.line) > LEAST_TOKENS:
            cut = cut.shorter()
        sent_items.append(cut if cut.mark == mark else whole)
    return sent_items


def remarks_of(gathered: Sequence[GatheredSection], level: Level) -> Remarks:
    """Return what is known against the entries of the current store that were gathered."""
    references = {item.reference for section in gathered for item in section.items}
    ids = sorted(ids_at(level, references))
    return remarks_on(level, ids)


def with_remarks(gathered: Sequence[GatheredSection], remarks: Remarks) -> list[GatheredSection]:
    """Return the sections with remarks; entries that need a recheck are listed once, in its section."""
    rechecks: dict[str, PackItem] = {}
    sections: dict[str, GatheredSection] = {}
    for definition, items, total in gathered:
        remaining: list[PackItem] = []
        for item in items:
            if item.reference in remarks.rechecks:
                rechecks.setdefault(item.reference, _recheck_item(item, remarks.rechecks[item.reference]))
            elif item.reference in remarks.beside:
                remaining.append(item.with_remark(remarks.beside[item.reference]))
            else:
                remaining.append(item)
        sections[definition.name] = GatheredSection(definition, remaining, total - (len(items) - len(remaining)))
    if rechecks:
        definition = next(section for section in all_sections() if section.name == RECHECK_SECTION)
        queue = sections.get(definition.name, GatheredSection(definition, [], 0))
        items = [*rechecks.values(), *queue.items]
        sections[definition.name] = GatheredSection(definition, items, queue.total + len(rechecks))
    return sorted(filter(_has_items, sections.values()), key=lambda section: section.section.order)


def _has_items(section: GatheredSection) -> bool:
    return bool(section.items)


# The beginning of its line, which names it, and why
def _recheck_item(item: PackItem, why: str) -> PackItem:
    return PackItem(item.reference, lambda: one_line(item.with_remark(why).line, _RECHECK), is_checked=True)


def changed_since(body: PackBody, marks: Mapping[str, str]) -> tuple[PackBody, list[str]]:
    """Return the items that are new or changed against an earlier pack's marks, and the references that are gone."""
    changed: list[FilledSection] = []
    for filled in body.sections:
        items = [item for item in filled.items if marks.get(filled.section.key(item)) != item.mark]
        if items:
            changed.append(replace(filled, items=items))
    gone = sorted({reference_of(key) for key in set(marks) - set(body.marks())})
    return PackBody(changed, body.truncated), gone


# Characters of the line of an entry that needs a recheck
_RECHECK = 200
# The colon of a title, and the count of items left out
_TITLE_TOKENS = 12


@dataclass(slots=True)
class _SectionDraft:
    section: SectionDefinition
    items: Sequence[PackItem]
    total: int
    # Those of all sections so far
    texts: set[str]
    chosen: list[PackItem] = field(default_factory=list)
    repeated: int = 0
    tokens: int = 0

    @property
    def is_cut(self) -> bool:
        return self.total > len(self.chosen) + self.repeated

    def has_next(self) -> bool:
        while self._at < len(self.items) and self.items[self._at].text in self.texts:
            self.repeated += 1
        return self._at < len(self.items)

    @property
    def _at(self) -> int:
        return len(self.chosen) + self.repeated

    def limited(self, budget: int) -> int:
        """Return the part of the remaining budget that the section may take."""
        return min(budget, self.section.most_tokens - self.tokens) if self.section.most_tokens else budget

    def begin(self, share: int, budget: int) -> int:
        """Take items until the share is used up, the first one cut to the remaining budget; return their tokens."""
        title = estimate_tokens(self.section.title) + _TITLE_TOKENS
        if budget - title < LEAST_TOKENS or not self.has_next():
            return 0
        first = self._next().within(max(share, LEAST_TOKENS * 2, budget // 4) - title)
        if title + _cost(first) > budget:
            return 0
        self.tokens = title
        self._choose(first)
        share = min(share, budget)
        while self.has_next() and self._take(share - self.tokens):
            pass
        return self.tokens

    def take_next(self, budget: int) -> int:
        """Take one more item, cut to the budget if needed; return its tokens, 0 if there is no room."""
        with isolated(self.section):
            if not self.has_next():
                return 0
            cost = self._take(budget)
            if not cost and budget > LEAST_TOKENS:
                cost = self._choose(self._next().within(budget - 1))
            return cost
        self.chosen.clear()
        return 0

    def _take(self, most: int) -> int:
        item = self._next()
        return self._choose(item) if _cost(item) <= most else 0

    def filled(self) -> FilledSection:
        return FilledSection(self.section, self.chosen, self.total - len(self.chosen), self.tokens)

    def _next(self) -> PackItem:
        return self.items[self._at].cut(self.section.longest)

    def _choose(self, item: PackItem) -> int:
        if text := self.items[self._at].text:
            self.texts.add(text)
        self.chosen.append(item)
        self.tokens += _cost(item)
        return _cost(item)


def _cost(item: PackItem) -> int:
    return estimate_tokens(f"{item.line}\n")
