"""Shell text -> simple commands, the way sh splits it, without running anything.

Understands quotes, line continuations, comments, separators, redirections, `NAME=value`, `export`, and variables
whose values the text itself or the caller gives. What only a running shell could know (`$(date)`, `"$@"`) stays in the
words as it is and is named, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from repro.errors import UnresolvedWrapper

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^{}]*))?\})")
_WORKING_DIRECTORY = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`")
_REDIRECTION = re.compile(r"(\d*|&)(>>|>\||>&|<<<|<<|<>|>|<)(&?\d+|&?-)?")
_CHAINING = ("||", "|", "|&")
_SEPARATOR = re.compile(r"&&|\|\||\|&|;;|[;&|\n]")
_SUBSTITUTION_IN_QUOTES = r"\$[({@*#?!$-]"
_SUBSTITUTION = r"\$[({@*#?!$'-]"
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """One simple command: its words after expansion, and its text as written with what joins it to the next command.

    The text of `cd /x && …` is "cd /x &&". In a chain (`a || b`, `a | b`) the last command carries the text of all.
    """

    words: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class ShellText:
    """A text's commands in order, and the names of variables that it uses but nobody gave a value for; such a variable
    stays in the words as `$NAME`."""

    statements: tuple[Statement, ...]
    unexpanded: frozenset[str]


def read_shell(text: str, variables: Mapping[str, str]) -> ShellText:
    """Split a text into simple commands. `variables` are values known from outside; those assigned in the text win.

    Raises UnresolvedWrapper for an unclosed quote or a substitution that only a running shell could make.
    """
    reader = _Reader(text.replace("\r\n", "\n"), dict(variables))
    reader.read()
    return ShellText(tuple(reader.statements), frozenset(reader.unexpanded))


class _Reader:
    """Walks through the text once; the state is the position and the word being built."""

    def __init__(self, text: str, variables: dict[str, str]) -> None:
        self.text = text
        self.variables = variables
        self._assigned: set[str] = set()
        self.statements: list[Statement] = []
        self.unexpanded: set[str] = set()
        self._at = 0
        self._begin = 0
        self._comment: int | None = None
        self._words: list[str] = []
        self._pieces: list[str] = []
        self._in_word = False
        self._skip_next = False

    def read(self) -> None:
        while self._at < len(self.text):
            self._step()
        self._end_statement(len(self.text), len(self.text), ";")

    def _step(self) -> None:
        text, at = self.text, self._at
        char = text[at]
        separator = _SEPARATOR.match(text, at)
        redirection = _REDIRECTION.match(text, at) if not self._in_word or char in "<>" else None
        if text.startswith("\\\n", at):
            self._at += 2
        elif char in " \t\r":
            self._end_word()
            self._at += 1
        elif char == "#" and not self._in_word:
            self._comment = at if self._comment is None and self._words else self._comment
            end = text.find("\n", at)
            self._at = len(text) if end < 0 else end
        elif redirection:
            self._refuse_documents(redirection.group(2))
            self._end_word()
            self._at = redirection.end()
            self._skip_next = redirection[3] is None
        elif separator:
            self._end_statement(at, separator.end(), separator[0])
        else:
            self._in_word = True
            self._character(char)

    def _refuse_documents(self, operator: str) -> None:
        if operator in ("<<", "<<<") or self.text.startswith(("<(", ">("), self._at):
            raise UnresolvedWrapper(
                f"The command is fed by {operator}, which only a running shell could follow.",
                "Give the vllm command by itself.",
            )

    def _character(self, char: str) -> None:
        match char:
            case "'":
                end = self._closing("'")
                self._pieces.append(self.text[self._at + 1 : end])
                self._at = end + 1
            case '"':
                self._double_quoted()
            case "\\":
                self._pieces.append(self.text[self._at + 1 : self._at + 2])
                self._at += 2
            case "$" | "`":
                self._expand(quoted=False)
            case "~" if not self._pieces and re.match(r"~(/|\s|$)", self.text[self._at :]):
                self._pieces.append(self._lookup("HOME", None))
                self._at += 1
            case _:
                self._pieces.append(char)
                self._at += 1

    def _closing(self, quote: str) -> int:
        end = self.text.find(quote, self._at + 1)
        if end < 0:
            raise _unclosed(quote, self.text[self._at :])
        return end

    def _double_quoted(self) -> None:
        begin = self._at
        self._at += 1
        while self._at < len(self.text):
            char = self.text[self._at]
            if char == '"':
                self._at += 1
                return
            if self.text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "\\" and self.text[self._at + 1 : self._at + 2] in ("$", "`", '"', "\\"):
                self._pieces.append(self.text[self._at + 1])
                self._at += 2
            elif char in "$`":
                self._expand(quoted=True)
            else:
                self._pieces.append(char)
                self._at += 1
        raise _unclosed('"', self.text[begin:])

    def _expand(self, quoted: bool) -> None:
        rest = self.text
        directory = _WORKING_DIRECTORY.match(rest, self._at)
        variable = _VARIABLE.match(rest, self._at)
        if directory:
            self._at = directory.end()
            self._add(self._lookup("PWD", None), quoted)
        elif variable:
            self._at = variable.end()
            self._add(self._lookup(variable[1] or variable[2], variable[3]), quoted)
        elif rest[self._at] == "$" and not re.match(
            _SUBSTITUTION_IN_QUOTES if quoted else _SUBSTITUTION, rest[self._at :]
        ):
            self._pieces.append("$")
            self._at += 1
        else:
            snippet = _snippet(rest, self._at)
            self._at += len(snippet)
            self.unexpanded.add(snippet)
            self._pieces.append(snippet)

    def _lookup(self, name: str, default: str | None) -> str:
        passed_on = "".join(self._pieces).endswith(f"{name}=") and name not in self._assigned
        if passed_on:  # NAME=$NAME hands a variable on: its value (a token, often) stays out of what is understood
            self.unexpanded.add(f"${name}")
            return f"${name}"
        if name in self.variables:
            return self.variables[name]
        if default is not None:
            return default
        self.unexpanded.add(f"${name}")
        return f"${name}"

    def _add(self, value: str, quoted: bool) -> None:
        """An expansion outside quotes falls apart at blanks, as in sh; what is not known cannot."""
        whole = quoted or ASSIGNMENT.match("".join(self._pieces)) or unexpanded_in(value, self.unexpanded)
        parts = [value] if whole else value.split()
        for part in parts[:-1]:
            self._pieces.append(part)
            self._end_word()
            self._in_word = True
        self._pieces.extend(parts[-1:])
        if not parts and not self._pieces:
            self._in_word = False

    def _end_word(self) -> None:
        if self._in_word and not self._skip_next:
            self._words.append("".join(self._pieces))
        if self._in_word:
            self._skip_next = False
        self._pieces, self._in_word = [], False

    def _end_statement(self, end: int, following: int, separator: str) -> None:
        self._end_word()
        words = self._words
        if words:
            exported = words[1:] if words[0] in ("export", "declare", "local", "readonly") else words
            pairs = [ASSIGNMENT.fullmatch(w) for w in exported]
            if all(pairs) or exported is not words:
                self.variables.update((m[1], m[2]) for m in pairs if m)
                self._assigned.update(m[1] for m in pairs if m)
            joiner = ";" if separator in ("\n", ";;") else separator
            source = self.text[self._begin : end if self._comment is None else self._comment].strip()
            self.statements.append(Statement(tuple(words), "" if joiner in _CHAINING else f"{source} {joiner}"))
        if separator not in _CHAINING or not words:
            self._begin = following
        self._at = following
        self._words, self._skip_next, self._comment = [], False, None


def _snippet(text: str, at: int) -> str:
    """The text of a substitution that begins at `at`: $(…), ${…}, `…`, $@."""
    opening = text[at : at + 2]
    if opening == "$(":
        depth = 0
        for end in range(at + 1, len(text)):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                return text[at : end + 1]
        raise _unclosed("$(", text[at:])
    closing = {"${": "}", "$'": "'"}.get(opening, "`" if opening[0] == "`" else "")
    if not closing:
        return opening
    end = text.find(closing, at + (1 if closing == "`" else 2))
    if end < 0:
        raise _unclosed(closing, text[at:])
    return text[at : end + 1]


def unexpanded_in(word: str, unexpanded: Collection[str]) -> list[str]:
    """Those of the expressions that a word holds, in the order they stand there."""
    pattern = unexpanded_pattern(unexpanded)
    return pattern.findall(word) if pattern is not None else []


def unexpanded_pattern(unexpanded: Collection[str]) -> re.Pattern[str] | None:
    """Matches any of the expressions; None where there are none."""
    longest_first = sorted(unexpanded, key=len, reverse=True)
    ends = (re.escape(e) + (r"(?!\w)" if re.fullmatch(r"\$\w+", e) else "") for e in longest_first)
    return re.compile("|".join(ends)) if longest_first else None


def _unclosed(quote: str, rest: str) -> UnresolvedWrapper:
    return UnresolvedWrapper(
        f"A {quote} quote is never closed: {rest[:60]}",
        "Quote the whole command once more, for instance in a file given with --file.",
    )
