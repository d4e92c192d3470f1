"""Text, argument list or `docker run` line -> Command.

Nothing is run and no file is read: what only a running shell, a script or an image could tell is refused with
UnresolvedWrapper, and what is no vLLM server with NotVllm. Flags are never refused, since a wrong one may be the very
fault that is looked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from repro.domain.command.command import Command
from repro.domain.command.container import read_container, unknown_entrypoint
from repro.domain.command.flag_reader import read_arguments
from repro.domain.command.program import HINT, SHELL_BUILTINS, Start, find_start, not_started
from repro.domain.command.shell_words import ASSIGNMENT, read_shell, unexpanded_in
from repro.errors import NotVllm, ReproError, UnresolvedWrapper

_WITHOUT_EFFECT = ("set", "echo", "printf", "sleep", "trap", "wait", ":")


@dataclass(frozen=True)
class _Context:
    """What holds for every word of one text: outside values, names nobody gave a value for, variables exported
    before.
    """

    variables: Mapping[str, str]
    unexpanded: frozenset[str] = frozenset()
    exported: tuple[tuple[str, str], ...] = ()
    prelude: tuple[str, ...] = ()


def parse(text_or_argv: str | Sequence[str], variables: Mapping[str, str] | None = None) -> Command:
    """Understand a vLLM command given as shell text or as an argument list.

    `variables` gives values to shell variables that a text uses and does not assign. Raises NotVllm or
    UnresolvedWrapper.
    """
    if isinstance(text_or_argv, str):
        command = _from_text(text_or_argv, variables or {})
    else:
        words = tuple(text_or_argv)
        if len(words) == 1 and " " in words[0]:  # one quoted word: a whole line was meant
            return parse(words[0], variables)
        command = _from_words(words, _Context(variables or {}))
    return _without_builtins(command)


def _from_text(text: str, variables: Mapping[str, str]) -> Command:
    shell = read_shell(text, variables)
    exported: list[tuple[str, str]] = []
    prelude: list[str] = []
    found: list[Command] = []
    refused: list[ReproError] = []
    for statement in shell.statements:
        words = statement.words
        if words[0] == "export":
            pairs = [(m[1], m[2]) for m in map(ASSIGNMENT.fullmatch, words[1:]) if m]
            known = [(n, v) for n, v in pairs if v == f"${n}" or not unexpanded_in(v, shell.unexpanded)]
            exported += known
            if len(known) < len(pairs):  # left to the shell that runs it
                prelude.append(statement.source)
        elif find_start(words) is not None:
            context = _Context(variables, shell.unexpanded, tuple(exported), tuple(prelude))
            try:
                found.append(_from_words(words, context))
            except (NotVllm, UnresolvedWrapper) as error:
                refused.append(error)
        elif not all(ASSIGNMENT.fullmatch(w) for w in words):
            refused.append(not_started(words))
            if statement.source and words[0] not in _WITHOUT_EFFECT:
                prelude.append(statement.source)
    if len(found) > 1:
        raise NotVllm(f"The text starts {len(found)} vLLM servers.", "Give one of them at a time.")
    if not found:
        raise _clearest(refused)
    return found[0]


def _clearest(refused: Sequence[ReproError]) -> ReproError:
    """A wrapper tells more than the harmless statements around it."""
    empty: list[ReproError] = [NotVllm("The command is empty.", HINT)]
    return max(empty + list(refused), key=lambda error: (isinstance(error, UnresolvedWrapper), error not in empty))


def _from_words(words: tuple[str, ...], context: _Context) -> Command:
    start = find_start(words)
    if start is None:
        raise not_started(words)
    match start.kind:
        case "container":
            return _in_container(words, start, context)
        case "shell":
            return _in_shell(words, start, context)
        case _:
            return _plain(words, start, context)


def _plain(words: tuple[str, ...], start: Start, context: _Context) -> Command:
    arguments = read_arguments(words[start.end :])
    pairs = dict((*context.exported, *start.pairs))
    passed = tuple(name for name, value in pairs.items() if value == f"${name}" and value in context.unexpanded)
    command = Command(
        program=words[start.at : start.end],
        model=arguments.model,
        flags=arguments.flags,
        environment=tuple((n, v) for n, v in pairs.items() if n not in passed),
        environment_from=passed,
        launcher=start.launcher,
        pairs_at=start.pairs_at,
        prelude=context.prelude,
        model_position=arguments.model_position,
        extras=arguments.extras,
    )
    used = (*start.launcher, *words[start.at :], *(v for _, v in command.environment))
    missing = sorted({expression for word in used for expression in unexpanded_in(word, context.unexpanded)})
    if missing:
        raise UnresolvedWrapper(
            f"The command uses {', '.join(missing)}, whose value is not in the text.",
            "Write the value itself, or give --pid or --container of the running server.",
        )
    return command


def _in_shell(words: tuple[str, ...], start: Start, context: _Context) -> Command:
    """`bash -c "…"`: the text inside is the command; variables set outside reach it."""
    outside = dict((*context.exported, *start.pairs))
    inner = _from_text(words[start.end], {**context.variables, **outside})
    if inner.container is not None:  # the shell adds nothing to a container's start
        return _called_by(inner, start, context)
    merged = {**outside, **dict(inner.environment)}
    wrapper = inner.wrapper or (*start.launcher, *words[start.at : start.end])
    prelude = (*context.prelude, *inner.prelude)
    return replace(inner, environment=tuple(merged.items()), wrapper=wrapper, prelude=prelude)


def _in_container(words: tuple[str, ...], start: Start, context: _Context) -> Command:
    """`docker run …`: the words behind the image, after those that the image puts in front, are the command."""
    container, after = read_container(words[start.at :])
    words = (*container.entry, *after)
    if find_start(words) is None and not container.entry and "-m" not in words:
        raise unknown_entrypoint(container.image)
    inner = _from_words(words, _Context(context.variables, context.unexpanded))
    for name in [n for n, v in container.environment if v == f"${n}" and v in context.unexpanded]:
        container = container.passing_through(name)
    merged = dict(container.environment)
    for name, value in inner.environment:
        if name in merged:
            container = container.with_environment(name, value)
        merged[name] = value
    command = replace(
        inner,
        environment=tuple(merged.items()),
        environment_from=(*container.environment_from, *inner.environment_from),
        container=container,
        unexpanded=context.unexpanded,
    )
    return _called_by(command, start, context)


def _called_by(command: Command, start: Start, context: _Context) -> Command:
    """A container's command with what stands in front of its client; variables there are the client's, not vLLM's."""
    if command.container is None:
        return command
    pairs = tuple(f"{name}={value}" for name, value in (*context.exported, *start.pairs))
    if start.pairs_at is not None:
        launcher = (*start.launcher[: start.pairs_at], *pairs, *start.launcher[start.pairs_at :])
    else:
        launcher = (*start.launcher, *(("env", *pairs) if pairs else ()))
    prelude = (*context.prelude, *command.prelude)
    container = replace(command.container, client=(*launcher, *command.container.client))
    return replace(command, container=container, prelude=prelude)


def _without_builtins(command: Command) -> Command:
    """Outside a shell there is no `exec` to call, and it would change nothing."""
    if command.wrapper or command.container is not None:
        return command
    kept = tuple(word for word in command.launcher if word not in SHELL_BUILTINS)
    dropped = len(command.launcher) - len(kept)
    at = command.pairs_at - dropped if command.pairs_at is not None else None
    return replace(command, launcher=kept, pairs_at=at)
