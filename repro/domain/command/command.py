"""A vLLM command as a value: what starts it, the model, the flags, the environment, the container around it.

What was not changed is written back with the tokens it was read from; a change touches only its own flag. The
environment is part of `argv()` only where it stands inside it (docker's -e, `sudo A=B`, `env A=B`, a shell's text);
otherwise it is for the caller to hand to the process, and `shell()` writes it in front.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from repro.domain.command.container import Container
from repro.domain.command.flag import Flag, FlagValue, looks_like_flag
from repro.domain.command.flag_names import canonical
from repro.domain.command.settings import value_of, with_value
from repro.domain.command.shell_words import ASSIGNMENT, unexpanded_pattern


@dataclass(frozen=True)
class Command:
    """One vLLM server command.

    `program` starts vLLM (("vllm", "serve"), ("python3", "-m", "vllm.entrypoints.openai.api_server")); `environment`
    holds the pairs written for it, `environment_from` the names that are passed through without a value. `launcher`
    stands in front of the program (numactl, sudo), and pairs are kept at `pairs_at` in it where they may not stand
    first. `wrapper` is a shell with its -c around all that, `prelude` the shell statements before the command (cd,
    source). `model_position` counts the flags before the positional model; `extras` are positionals that vLLM
    refuses. `unread` names the flags of a log line whose values the log does not give. `unexpanded` are the shell
    variables that a container's options use.
    """

    program: tuple[str, ...]
    model: str | None
    flags: tuple[Flag, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    environment_from: tuple[str, ...] = ()
    container: Container | None = None
    launcher: tuple[str, ...] = ()
    pairs_at: int | None = None
    wrapper: tuple[str, ...] = ()
    prelude: tuple[str, ...] = ()
    model_position: int | None = 0
    extras: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    unexpanded: frozenset[str] = field(default=frozenset(), compare=False)

    def flag(self, name: str) -> FlagValue:
        """The value in force for a flag, by any of its names; None when it is absent. "--model" gives the model."""
        if canonical(name) == "--model":
            return self.model
        return value_of(self.flags, name)

    def with_flag(self, name: str, value: FlagValue) -> Command:
        """The command with one flag set, replaced in its place or appended, or removed by None."""
        if canonical(name) == "--model":
            return self._with_model(value if isinstance(value, str) else None)
        position = 0 if self.model_position else self.model_position
        return replace(self, flags=with_value(self.flags, name, value), model_position=position)

    def with_environment(self, name: str, value: str | None) -> Command:
        """The command with one variable set, or removed by None (a pass-through by name included)."""
        names = [n for n, _ in self.environment]
        pairs = [(n, v if n != name else (value or "")) for n, v in self.environment if n != name or value is not None]
        if value is not None and name not in names:
            pairs.append((name, value))
        passed = tuple(n for n in self.environment_from if n != name)
        container = self.container
        if container is not None and not self._inside(name):
            container = container.with_environment(name, value)
        return replace(self, environment=tuple(pairs), environment_from=passed, container=container)

    def environment_value(self, name: str) -> str | None:
        """The value written for a variable; None when it is absent or passed through by name."""
        return dict(self.environment).get(name)

    @property
    def config_path(self) -> str | None:
        """The YAML file named by --config, which vLLM reads below the command line."""
        value = value_of(self.flags, "--config")
        return value if isinstance(value, str) else None

    @property
    def unknown_flags(self) -> tuple[str, ...]:
        """Names that no version of vLLM is known to have."""
        return tuple(dict.fromkeys(f.name for f in self.flags if not f.known))

    def arguments(self) -> tuple[str, ...]:
        """The tokens after the program."""
        by_flag = any(f.name == "--model" for f in self.flags)
        written = self.model if self.model is not None and self.model_position is not None and not by_flag else None
        positionals = (*(() if written is None else (written,)), *self.extras)
        if any(looks_like_flag(p) or p == "--" for p in positionals):
            return (*_tokens(self.flags), "--", *positionals)
        at = self.model_position or 0
        return (*_tokens(self.flags[:at]), *positionals, *_tokens(self.flags[at:]))

    def argv(self) -> tuple[str, ...]:
        """The whole command as an argument list, launcher and container included."""
        if self.wrapper:
            inner = (*self.wrapper, self._line())
        else:
            inner = self._words(() if self.pairs_at is None else self._pairs())
        if self.container is None:
            return inner
        return (*self.container.argv(), *inner[len(self.container.entry) :])

    def shell(self) -> str:
        """One line to copy into a shell, environment first."""
        if self.container is None and not self.wrapper:
            return self._line()
        return " ".join(_quoted(word, self.unexpanded) for word in self.argv())

    def _line(self) -> str:
        """The command without its wrapper as shell text, statements before it included."""
        passed = () if self.container is not None else self.environment_from
        words = self._words((*self._pairs(), *(f"{name}=${name}" for name in passed)), at_front=True)
        line = " ".join(_quoted(word, self.unexpanded | {f"${name}" for name in passed}) for word in words)
        return " ".join((*self.prelude, line))

    def _words(self, pairs: Iterable[str], at_front: bool = False) -> tuple[str, ...]:
        at = self.pairs_at if self.pairs_at is not None else 0
        if at == 0 and not at_front:
            pairs = ()
        return (*self.launcher[:at], *pairs, *self.launcher[at:], *self.program, *self.arguments())

    def _pairs(self) -> tuple[str, ...]:
        return tuple(f"{name}={value}" for name, value in self.environment if self._inside(name))

    def _inside(self, name: str) -> bool:
        """True for a variable that is written with the command itself and not as an option of the container."""
        if self.container is None:
            return True
        options = [n for n, _ in self.container.environment]
        return name in dict(self.environment) and name not in options

    def _with_model(self, model: str | None) -> Command:
        if any(f.name == "--model" for f in self.flags):
            return replace(self, model=model, flags=with_value(self.flags, "--model", model))
        return replace(self, model=model, model_position=0)


def _tokens(flags: Iterable[Flag]) -> tuple[str, ...]:
    return tuple(token for flag in flags for token in flag.argv())


def _quoted(word: str, unexpanded: frozenset[str]) -> str:
    """One word for sh. `NAME=value` keeps its name outside the quotes, or sh would not see an assignment; a
    variable that is left to the shell stays outside single quotes.
    """
    assignment = ASSIGNMENT.fullmatch(word)
    if assignment:
        return f"{assignment[1]}={_quoted(assignment[2], unexpanded) if assignment[2] else ''}"
    pattern = unexpanded_pattern(unexpanded)
    if pattern is None or not pattern.search(word):
        return shlex.quote(word)
    literal = [re.sub(r'([\\"`$])', r"\\\1", part) for part in pattern.split(word)]
    found = [*pattern.findall(word), ""]
    return '"' + "".join(part for pair in zip(literal, found, strict=True) for part in pair) + '"'
