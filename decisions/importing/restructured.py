"""What a record in reStructuredText needs to be read like one in Markdown, except its headings."""

from __future__ import annotations

import re

# A comment or a directive with what is indented below it; the text of admonitions and code stays
_COMMENT = re.compile(r"^\.\.(?:[ \t]+(?!\S+::|_)[^\n]*)?\n(?:[ \t]+[^\n]*\n|\n(?=[ \t]))*", re.MULTILINE)
_CONTENTS = re.compile(
    r"^\.\.[ \t]+(?:contents|toctree|sectnum)::[^\n]*\n(?:[ \t]+[^\n]*\n|\n(?=[ \t]))*", re.MULTILINE
)
_TARGET = re.compile(r"^\.\. _`?([^\n:`]+)`?:[ \t]+(\S+)[ \t]*$", re.MULTILINE)
_LABEL = re.compile(r"^\.\. _[^\n:]+:[ \t]*\n", re.MULTILINE)
_FIELD = re.compile(r"^:([^\n:]+):[ \t]+(?=\S)", re.MULTILINE)
_EMBEDDED = re.compile(r"`([^`<]++)<([^`<>]+)>`__?")
_ROLE = re.compile(r":(?:doc|ref|file):`(?:([^`<]++)<([^`<>]+)>|([^`<]+))`")
_NAMED = re.compile(r"`([^`]+)`_\b|(?<![\w`.-])([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)_(?!\w)")


def as_markdown(text: str) -> str:
    """Return the text with links, fields and literals in Markdown's form, without comments and link targets."""
    targets = {" ".join(name.split()).lower(): address for name, address in _TARGET.findall(text)}

    def named(match: re.Match[str]) -> str:
        name = " ".join((match[1] or match[2]).split())
        address = targets.get(name.lower())
        return f"[{name}]({address})" if address else match[0]

    def role(match: re.Match[str]) -> str:
        address = match[2] or match[3]
        return f"[{(match[1] or address).strip()}]({address if address.endswith('.rst') else f'{address}.rst'})"

    bare = _CONTENTS.sub("", _COMMENT.sub("", _LABEL.sub("", _TARGET.sub("", text))))
    linked = _EMBEDDED.sub(lambda link: f"[{link[1].strip()}]({link[2]})", _ROLE.sub(role, bare))
    return _FIELD.sub(r"\1: ", _NAMED.sub(named, linked).replace("``", "`"))
