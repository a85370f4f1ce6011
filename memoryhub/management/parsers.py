"""The commands' parsers as data, so that help, errors and completion need neither Django nor the commands.

``parsers.json`` describes the parsers of all commands; ``make docs`` writes it from the commands themselves.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, _ActionsContainer, _SubParsersAction
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from memoryhub import env
from memoryhub.core.text import did_you_mean
from memoryhub.management.terminal import Span, Style, has_colour, rendered

FILE = Path(__file__).with_name("parsers.json")
# Options that Django gives each command; ``--help`` hides them.
_DJANGOS_FLAGS = ("--version", "--traceback", "--no-color", "--force-color", "--skip-checks")
_DJANGOS_VALUES = ("--verbosity", "--settings", "--pythonpath")
# How many commands that take an option are named
_MOST_TAKERS = 3
DJANGOS_OPTIONS = (*_DJANGOS_FLAGS, *_DJANGOS_VALUES)


class Parser(ArgumentParser):
    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        chosen, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser = self
            siblings = []
            for action in self._actions:
                if isinstance(action, _SubParsersAction) and (name := getattr(chosen, action.dest, None)):
                    parser = action.choices[name]
                    siblings = [sibling for sibling in action.choices.values() if sibling is not parser]
                    break
            parser.error(_unknown(unknown[0].partition("=")[0], parser, siblings))
        return chosen

    # Errors are one sentence with the next command, not the usage
    def error(self, message: str) -> NoReturn:
        line = [Span(f"{self.prog}: {message}; `{self.prog} --help` shows what it takes", Style.RED)]
        self.exit(2, f"{rendered(line, colour=has_colour(sys.stderr))}\n")

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = list(map(str, action.choices))
            raise ArgumentError(
                action, f"{value!r} is not one of {', '.join(choices)}{did_you_mean(str(value), choices)}"
            )


def read_commands() -> dict[str, Any]:
    described: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return described


def is_answered_by_hub(described: dict[str, Any] | None, arguments: list[str]) -> bool:
    """Return whether a running hub answers a command line."""
    answered = described.get("hub", False) if described else False
    return answered if isinstance(answered, bool) else arguments[1:2] in [[name] for name in answered]


def _unknown(word: str, parser: Parser, siblings: list[Parser]) -> str:
    what = f"unknown {'option' if word.startswith('-') else 'argument'} {word!r}"
    takers = [sibling.prog for sibling in siblings if word in _options(sibling)]
    if not takers:
        program = parser.prog.partition(" ")[0]
        commands = read_commands()["commands"].items()
        takers = [f"{program} {name}" for name, command in commands if word in _flags(command["arguments"])]
    if not takers:
        return what + did_you_mean(word, _options(parser))
    names = [f"`{taker}`" for taker in takers[:_MOST_TAKERS]]
    if takers[_MOST_TAKERS:]:
        names.append(f"{len(takers) - _MOST_TAKERS} more")
    if len(names) == 1:
        return f"{what}, which {names[0]} takes"
    return f"{what}, which {', '.join(names[:-1])} and {names[-1]} take"


def _options(parser: Parser) -> list[str]:
    return [option for action in parser._actions if action.help != SUPPRESS for option in action.option_strings]


def _flags(arguments: list[dict[str, Any]]) -> Iterator[str]:
    for facts in arguments:
        if facts.get("help") != SUPPRESS:
            yield from facts.get("flags", ())
        for command in facts.get("commands", {}).values():
            yield from _flags(command["arguments"])


def describe(parser: ArgumentParser, values: dict[str, Iterable[str]]) -> dict[str, Any]:
    """Return a parser as data; ``values`` are the known values of arguments by name."""
    inherited = {"--help", *DJANGOS_OPTIONS}
    actions = [action for action in parser._actions if inherited.isdisjoint(action.option_strings)]
    arguments = [_describe(parser, action, values) for action in actions]
    return {"description": parser.description, "arguments": arguments}


def _describe(parser: ArgumentParser, action: Action, values: dict[str, Iterable[str]]) -> dict[str, Any]:
    groups = [group.title for group in parser._action_groups[2:] if action in group._group_actions]
    exclusive = [n for n, group in enumerate(parser._mutually_exclusive_groups) if action in group._group_actions]
    can_be_optional = bool(action.option_strings) or isinstance(action, _SubParsersAction)
    facts: dict[str, Any] = {
        "flags": action.option_strings,
        "dest": action.dest,
        "nargs": action.nargs,
        "metavar": action.metavar,
        "help": action.help and (SUPPRESS if action.help == SUPPRESS else parser._get_formatter()._expand_help(action)),
        "required": action.required if can_be_optional else None,
        "group": next(iter(groups), None),
        "exclusive": next(iter(exclusive), None),
        "one_of_these": any(parser._mutually_exclusive_groups[n].required for n in exclusive),
        "values": sorted(values.get(action.dest, ())),
    }
    if isinstance(action, _SubParsersAction):
        helps = {choice.dest: choice.help for choice in action._choices_actions}
        facts["commands"] = {
            name: {"help": helps[name], **describe(command, values)} for name, command in action.choices.items()
        }
    elif action.choices:
        facts["choices"] = list(action.choices)
    return {name: value for name, value in facts.items() if value is not None and value is not False and value != []}


def build(prog: str, described: dict[str, Any]) -> Parser:
    """Return the parser of a command. It checks names and choices of arguments, but not the types of values."""
    parser = Parser(prog=prog, description=described["description"])
    add_arguments(parser, described)
    for option in _DJANGOS_FLAGS:
        parser.add_argument(option, action="store_true", help=SUPPRESS)
    for option in _DJANGOS_VALUES:
        parser.add_argument(option, *(["-v"] if option == "--verbosity" else []), help=SUPPRESS)
    return parser


def add_arguments(parser: ArgumentParser, described: dict[str, Any]) -> None:
    groups: dict[Any, _ActionsContainer] = {None: parser}
    for facts in described["arguments"]:
        title, exclusive = facts.get("group"), facts.get("exclusive")
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        if exclusive is not None and (title, exclusive) not in groups:
            one_of_these = facts.get("one_of_these", False)
            groups[title, exclusive] = groups[title].add_mutually_exclusive_group(required=one_of_these)
        _add_argument(parser, groups[title if exclusive is None else (title, exclusive)], facts)


def _add_argument(parser: ArgumentParser, group: _ActionsContainer, facts: dict[str, Any]) -> None:
    settings: dict[str, Any] = {name: facts[name] for name in ("metavar", "required", "dest") if name in facts}
    if "commands" in facts:
        commands = parser.add_subparsers(**settings)
        for name, command in facts["commands"].items():
            add_arguments(
                commands.add_parser(name, help=_escaped(command["help"]), description=command["description"]), command
            )
        return
    if facts.get("nargs") == 0:
        settings["action"] = "store_true"
    else:
        settings |= {name: facts[name] for name in ("nargs", "choices") if name in facts}
    if not facts.get("flags"):
        settings.pop("dest")
    added = group.add_argument(*facts.get("flags", [facts["dest"]]), help=_escaped(facts.get("help")), **settings)
    added.values = facts.get("values", [])  # type: ignore[attr-defined]


# argparse fills in what follows a ``%``, which is done already, and knows SUPPRESS by identity
def _escaped(text: str | None) -> str | None:
    return text and (SUPPRESS if text == SUPPRESS else text.replace("%", "%%"))


SHELLS = ("bash", "zsh", "fish")


def completion_script(shell: str) -> str:
    from argcomplete.shell_integration import shellcode

    return shellcode(["memory-hub"], shell=shell)


def complete() -> None:
    """Print the completions of ``COMP_LINE`` as argcomplete's shell functions expect them, and exit."""
    from argcomplete import autocomplete
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter, SuppressCompleter

    parser = Parser(prog="memory-hub")
    commands = parser.add_subparsers()
    typed = os.environ.get("COMP_LINE", "").split()[1:2]
    for name, described in read_commands()["commands"].items():
        command = commands.add_parser(name, help=described["summary"])
        if name in typed:
            add_arguments(command, described)
    for action in _actions(parser):
        named = str(action.metavar or action.dest).upper()
        completer: Any = None
        if values := getattr(action, "values", None):
            completer = partial(_expanded, values)
        elif named == "DIR":
            completer = DirectoriesCompleter()
        elif named in ("FILE", "PATH"):
            completer = FilesCompleter()
        if completer:
            action.completer = completer  # type: ignore[attr-defined]
    autocomplete(parser, always_complete_options=False, default_completer=SuppressCompleter())


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


# A value with a ``*`` stands for the names of files in the home folder
def _expanded(values: list[str], **_: Any) -> list[str]:
    expanded = []
    for value in values:
        expanded += [path.name for path in env.home().glob(value)] if "*" in value else [value]
    return expanded
