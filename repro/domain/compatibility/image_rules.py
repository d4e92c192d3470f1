"""The image and the vLLM in it: which build this is, whether its name pins it, and who built it.

An image is official or self-built, never both: findings on a self-built image say nothing about the official one, and
the other way round. What is self-built needs four things before anyone else can judge it: the commit, the lock file
of its packages, the recipe of the image, and a note how to go back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from repro.domain.compatibility.chain import Link, RuleResult
from repro.domain.compatibility.conditions import Conditions, ImageConditions, SelfBuilt
from repro.domain.compatibility.node import Node
from repro.domain.compatibility.rule import BROKEN, HOLDS, UNKNOWN, Finding, compared, held, on_every_node, unknown
from repro.domain.fingerprint import Fact, Label
from repro.domain.release import between_releases

_RELEASE_TAG = re.compile(r"^v?\d+\.\d+(\.\d+)?")
_DIGEST = re.compile(r"@sha256:[0-9a-f]{6,}")
_LOCAL_LABELS = re.compile(r"\blocal\b|\bdirty\b", re.IGNORECASE)
_COMMIT_LABELS = ("org.opencontainers.image.revision", "vllm.build.commit", "ai.vllm.build.commit", "build.commit")
_HOW = "--self-built commit=…,lock=…,recipe=…,rollback=…"


@dataclass(frozen=True)
class Origin:
    """What speaks for an official and what for a self-built image on one node."""

    official: tuple[str, ...]
    self_built: tuple[str, ...]

    @property
    def known(self) -> bool:
        return bool(self.official or self.self_built)


def image_rules(
    nodes: Sequence[Node], conditions: Conditions, declared: SelfBuilt | None, expected_nodes: int
) -> Iterator[RuleResult]:
    """Tags, digests, the builder, and the same image on all nodes."""
    if conditions.image.forbidden_tags:
        yield _forbidden_tag(nodes, conditions.image)
    if conditions.image.pinned:
        yield _pinned(nodes)
    yield _one_origin(nodes, conditions.image, declared)
    yield _self_built(nodes, conditions.image, declared)
    if expected_nodes > 1:
        yield _same_image(nodes, expected_nodes)


def name_and_tag(image: str) -> tuple[str, str]:
    """("vllm/vllm-openai", "v0.29.0") for that reference; "latest" where a name says neither tag nor digest."""
    name, _, digest = image.partition("@")
    head, slash, last = name.rpartition("/")
    bare, colon, tag = last.partition(":")
    return head + slash + bare, tag if colon else ("" if digest else "latest")


def _no_container(node: Node) -> Finding | None:
    if node.in_container is False:
        return held(True, "no image: the server runs from the host's own Python", node.command_fact)
    if not node.image.known:
        return unknown("the image's name", node.image)
    return None


def _forbidden_tag(nodes: Sequence[Node], asked: ImageConditions) -> RuleResult:
    def look(node: Node) -> Finding:
        if (other := _no_container(node)) is not None:
            return other
        tag = name_and_tag(str(node.image.value))[1]
        reason = next((why for pattern, why in asked.forbidden_tags if fnmatchcase(tag, pattern)), "")
        return held(not reason, f"{node.image.value}" + (f": {reason}" if reason else ""), node.image)

    patterns = ", ".join(pattern for pattern, _ in asked.forbidden_tags)
    return on_every_node(
        nodes,
        look,
        id="image.tag",
        link=Link.IMAGE_BUILD,
        wanted=f"no tag like {patterns}",
        mend="take the image for CUDA 13 (its tag has no CUDA suffix, or -cu130)",
        learn="take the snapshot with --container NAME, or give the `docker run` line after `--`",
    )


def _pinned(nodes: Sequence[Node]) -> RuleResult:
    def look(node: Node) -> Finding:
        if (other := _no_container(node)) is not None:
            return other
        image, fact = str(node.image.value), node.image
        if _DIGEST.search(image) or image.startswith("sha256:"):
            return held(True, f"pinned by digest: {image}", fact)
        name, tag = name_and_tag(image)
        digest = next(iter(_digests(node)), "")
        now = node.fact("container.tag_now").value
        if isinstance(now, Mapping) and now.get("same") is False:
            return held(False, f"{image} means another image by now than the one that was started", fact)
        runs = f"; what runs is {digest or node.image_id.value}" if digest or node.image_id.known else ""
        if not _RELEASE_TAG.match(tag):
            return held(False, f"the tag {tag!r} of {name} moves{runs}", fact)
        if not runs:
            return unknown(f"which image {image} meant when it was started", node.image_id)
        return held(True, f"release tag {tag}{runs}", fact)

    return on_every_node(
        nodes,
        look,
        id="image.pinned",
        link=Link.IMAGE_BUILD,
        wanted="an image pinned by digest; a tag pins nothing, and a moving one was pushed more than once",
        mend="start the container as NAME@sha256:… (docker inspect --format '{{.RepoDigests}}' IMAGE tells the digest)",
        learn="take the snapshot with --container NAME, so that image id and digests are recorded",
    )


def _one_origin(nodes: Sequence[Node], asked: ImageConditions, declared: SelfBuilt | None) -> RuleResult:
    all_nodes = [origin_of(node, asked, declared) for node in nodes]
    kinds = {kind for origin in all_nodes for kind in _kinds(origin)}

    def look(node: Node) -> Finding:
        origin = origin_of(node, asked, declared)
        if not origin.known:
            return unknown("who built this vLLM", node.image if node.in_container else node.vllm_version)
        signs = [*(f"official: {s}" for s in origin.official), *(f"self-built: {s}" for s in origin.self_built)]
        return Finding(HOLDS if len(kinds) == 1 else BROKEN, "; ".join(signs), _label(node, declared))

    return on_every_node(
        nodes,
        look,
        id="image.one_origin",
        link=Link.IMAGE_BUILD,
        wanted="one origin in one record: all official or all self-built",
        mend="use one image everywhere: a release image by digest, or your own build under a name of its own; what "
        "was measured on one says nothing about the other",
        learn="take the snapshot with --container NAME --inside, so that image, labels and vLLM's version are known",
    )


def _kinds(origin: Origin) -> Iterator[str]:
    if origin.official:
        yield "official"
    if origin.self_built:
        yield "self-built"


def _self_built(nodes: Sequence[Node], asked: ImageConditions, declared: SelfBuilt | None) -> RuleResult:
    def look(node: Node) -> Finding:
        origin = origin_of(node, asked, declared)
        if not origin.known:
            return unknown("who built this vLLM", node.image if node.in_container else node.vllm_version)
        if not origin.self_built:
            return Finding(HOLDS, f"not self-built: {origin.official[0]}", _label(node, None))
        said = declared or SelfBuilt()
        commit = build_commit(node)
        missing = [name for name in said.missing() if name != "commit" or not commit.known]
        seen = f"self-built ({origin.self_built[0]})"
        if missing:
            return Finding(BROKEN, f"{seen}; not told: {', '.join(missing)}", _label(node, declared))
        return Finding(HOLDS, f"{seen}, of commit {said.commit or commit.value}", Label.DECLARED)

    return on_every_node(
        nodes,
        look,
        id="image.self_built",
        link=Link.IMAGE_BUILD,
        wanted="an official build, or a self-built one with commit, lock file, image recipe and rollback note",
        mend=f"declare what it was built from: {_HOW}; a mirror of the official image is named in a recipe of your own "
        "(compatibility.image.official)",
        learn="take the snapshot with --container NAME --inside, or declare your own build with --self-built",
    )


def _same_image(nodes: Sequence[Node], expected: int) -> RuleResult:
    ids = {node.name: str(node.image_id.value) for node in nodes if node.image_id.known}
    bare = [node.name for node in nodes if node.in_container is False]
    seen = ", ".join(f"{name}: {id[:19]}" for name, id in ids.items()) or "no image id is known"
    mend, evidence = "", Label.MEASURED
    if len(set(ids.values())) > 1 or (ids and bare):
        outcome, mend = BROKEN, "pull the same digest on every node and start all ranks from it"
    elif (len(ids) == len(nodes) or len(bare) == len(nodes)) and len(nodes) >= expected:
        outcome, seen = HOLDS, seen if ids else "no image on any node"
    else:
        outcome, evidence = UNKNOWN, Label.UNAVAILABLE
        mend = "take a snapshot with --container NAME on each node and give them all: repro check NODE1 NODE2 …"
    return RuleResult("image.same", Link.IMAGE_BUILD, outcome, evidence, seen, "the same image id on every node", mend)


def origin_of(node: Node, asked: ImageConditions, declared: SelfBuilt | None) -> Origin:
    """What speaks for either origin of this node's vLLM. A declaration is a sign like the others."""
    official: list[str] = []
    own: list[str] = ["declared as self-built"] if declared is not None else []
    number = str(node.vllm_version.value) if node.vllm_version.known else ""
    in_between = bool(number) and between_releases(number)
    if node.image.known and node.in_container:
        name, tag = name_and_tag(str(node.image.value))
        if any(fnmatchcase(name, pattern) for pattern in asked.official):
            pulled = any(fnmatchcase(d.partition("@")[0], p) for d in _digests(node) for p in asked.official)
            official.append(f"the image's name is {name}")
            # An official nightly lies between releases too; only a registry's digest tells it from a local build.
            if in_between and not pulled:
                own.append(f"vLLM {number} is a build between releases and has no digest of an official registry")
        elif not name.startswith("sha256"):
            own.append(f"the image's name {name}{':' + tag if tag else ''} is none of the official ones")
        own += [f"label {key}={value}" for key, value in _labels(node).items() if _LOCAL_LABELS.search(value)]
    elif in_between:
        own.append(f"vLLM {number} is a build between releases")
    elif number and node.in_container is False:
        official.append(f"vLLM {number} is a released version")
    return Origin(tuple(official), tuple(own))


def origin_kind(nodes: Sequence[Node], asked: ImageConditions, declared: SelfBuilt | None) -> str:
    """Either "official", "self-built", "mixed" or "unknown": what a record of these nodes is a record of."""
    kinds = {kind for node in nodes for kind in _kinds(origin_of(node, asked, declared))}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), "unknown")


def build_commit(node: Node) -> Fact:
    """The commit that the image says it was built from: its label, or the variable that the image sets."""
    for key in _COMMIT_LABELS:
        if _labels(node).get(key):
            return Fact.measured(_labels(node)[key], f"label {key}")
    told = node.fact("inside.build").value
    if isinstance(told, Mapping) and told.get("VLLM_BUILD_COMMIT"):
        return Fact.measured(told["VLLM_BUILD_COMMIT"], "VLLM_BUILD_COMMIT inside")
    value = node.environment.value.get("VLLM_BUILD_COMMIT") if node.environment.known else None
    return Fact.measured(value, "VLLM_BUILD_COMMIT") if value else Fact.unavailable("no label tells it")


def _labels(node: Node) -> dict[str, str]:
    labels = node.fact("container.labels").value
    return {str(k): str(v) for k, v in labels.items()} if isinstance(labels, Mapping) else {}


def _digests(node: Node) -> list[str]:
    found = node.fact("container.repo_digests").value
    return [str(digest) for digest in found] if isinstance(found, (list, tuple)) else []


def _label(node: Node, declared: SelfBuilt | None) -> Label:
    return Label.DECLARED if declared is not None else node.image.label if node.image.known else Label.MEASURED


def version_rules(nodes: Sequence[Node], conditions: Conditions) -> Iterator[RuleResult]:
    """vLLM's version, inside and in the log; both must say the same."""
    if conditions.vllm_min is None:
        return
    minimum = conditions.vllm_min

    def look(node: Node) -> Finding:
        found = node.vllm
        places = {place: str(fact.value) if fact.known else None for place, fact in found.items()}
        known = [(place, fact) for place, fact in found.items() if fact.known]
        if not known:
            finding = unknown("vLLM's version", node.fact("inside.vllm", "libraries.vllm"))
            return Finding(finding.outcome, finding.seen, finding.evidence, places)
        if len({str(fact.value).partition("+")[0] for _, fact in known}) > 1:
            seen = " and ".join(f"vLLM {fact.value} ({place})" for place, fact in known)
            return Finding(
                BROKEN, f"{seen}: two builds, so the log or the environment is another server's", places=places
            )
        place, fact = known[0]
        finding = compared(fact, minimum, f"vLLM {fact.value} ({place})")
        return Finding(finding.outcome, finding.seen, finding.evidence, places)

    yield on_every_node(
        nodes,
        look,
        id="vllm.version",
        link=Link.VLLM_VERSION,
        wanted=f"vLLM {minimum} or newer, the same inside and in the log",
        mend=f"use a release image of vLLM {minimum} or newer, by digest",
        learn="take the snapshot with --log FILE, or with --inside; a build without a release number is judged by its "
        "commit, not by this rule: use a release",
    )
