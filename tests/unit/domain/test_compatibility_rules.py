"""Every rule holding, broken and unknown; and no rule that holds on facts that nobody has."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.domain.compatibility import Chain, Node, Place, RuleOutcome, RuleResult, SelfBuilt, check
from repro.domain.fingerprint import Fact, Label
from repro.domain.scene_difference import compare_scenes
from repro.recipe.ask import conditions_of
from repro.recipe.find import find_recipe, recipe_names
from tests.fakes.fitting_facts import (
    DRIVER,
    GB,
    IMAGE_ID,
    RUNTIME,
    fitting_argv,
    fitting_nodes,
    fitting_values,
    libraries,
)

TODAY = date(2026, 12, 1)
B300, B200, MI355X, CPU = "kimi-k3-b300", "kimi-k3-b200-2node", "kimi-k3-mi355x", "cpu-demo"


def chain_of(
    name: str, changed: dict[str, Any], only_node: int | None = None, self_built: SelfBuilt | None = None
) -> Chain:
    return check(
        fitting_nodes(name, changed, only_node), conditions_of(find_recipe(name)), today=TODAY, self_built=self_built
    )


def rule_of(chain: Chain, id: str) -> RuleResult:
    return next(result for result in chain.results if result.id == id)


def argv(name: str, *words: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fitting command with words more, and without flags (and their values)."""
    kept: list[str] = []
    skip = False
    for word in fitting_argv(name):
        skip = word in without or (skip and not word.startswith("--"))
        kept += [] if skip else [word]
    return {"process.argv": [*kept, *words]}


def environment(name: str, **pairs: str) -> dict[str, Any]:
    return {"process.environment": {**fitting_values(name)["process.environment"], **pairs}}


def version(number: str | None) -> dict[str, Any]:
    return {"inside.vllm": number, "triage.diagnosis": {"vllm_version": number}}


def gpus(count: int, name: str = "NVIDIA B300 SXM6 AC", memory: int = 288, mig: bool | None = False) -> dict[str, Any]:
    device = {"name": name, "memory_total": memory * GB, "mig": mig}
    return {"gpu.devices": [device] * count, "inside.gpus": count}


NO_GPUS: dict[str, Any] = {"gpu.devices": None, "inside.gpus": None}
NO_CUDA: dict[str, Any] = {"inside.cuda": None, "inside.torch": None, "process.libraries": None}
NO_IMAGE: dict[str, Any] = {"container.image": None, "container.repo_digests": None, "inside.vllm": None}
NO_COMMAND: dict[str, Any] = {"process.argv": None}
OWN: dict[str, Any] = {"container.image": "registry.example/vllm:mine", "container.repo_digests": []}
OLD_LIBCUDA = libraries("/usr/lib/libcuda.so.575.57.08", RUNTIME)

# (rule, recipe, what breaks it, what makes it unknown)
RULES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("driver.version", B300, {"gpu.driver_version": "575.57.08"}, {"gpu.driver_version": None}),
    ("driver.mapped", B300, {"process.libraries": OLD_LIBCUDA}, {"process.libraries": None}),
    ("runtime.gpus", B300, {"container.gpus": []}, {"container.gpus": None}),
    (
        "runtime.shared_memory",
        B300,
        {"container.limits": {"shm_size": 64 * 2**20, "ipc": "private"}},
        {"container.limits": None},
    ),
    ("cuda.platform", B300, {"inside.torch": "2.11.0+cpu"}, NO_CUDA),
    ("cuda.platform", CPU, {"inside.torch": "2.11.0+cu130"}, {"inside.torch": "2.11.0", "inside.vllm": "0.29.0"}),
    ("cuda.runtime", B300, {"inside.cuda": "12.9"}, NO_CUDA),
    ("cuda.driver_ability", B300, {"gpu.cuda_version": "12.8"}, {"gpu.cuda_version": None}),
    ("image.tag", B300, {"container.image": "vllm/vllm-openai:v0.29.0-cu129"}, {"container.image": None}),
    ("image.pinned", B300, {"container.image": "vllm/vllm-openai:kimi-k3"}, {"container.image": None}),
    ("image.one_origin", B300, {"container.labels": {"pipeline": "local"}}, NO_IMAGE),
    ("image.self_built", B300, OWN, NO_IMAGE),
    ("vllm.version", B300, version("0.27.0"), version(None)),
    ("gpu.model", B300, gpus(8, "NVIDIA B200"), NO_GPUS),
    ("gpu.count", B300, gpus(4), NO_GPUS),
    ("gpu.memory", B300, gpus(8, memory=180), NO_GPUS),
    ("gpu.mig", B300, gpus(8, mig=True), gpus(8, mig=None)),
    ("model.files", B300, {"model_files.weight_files": 95}, {"model_files.weight_files": None}),
    (
        "flags.known",
        B300,
        argv(B300, "--swap-space", "4"),
        {**argv(B300, "--swap-space", "4"), **version(None)},
    ),
    ("flags.required", B300, argv(B300, without=("--trust-remote-code",)), NO_COMMAND),
    ("flags.layout", B300, argv(B300, "--tensor-parallel-size", "16"), NO_GPUS),
    ("flags.refused", B300, argv(B300, "--enable-eplb"), NO_COMMAND),
    ("flags.expected", B300, argv(B300, without=("--kv-cache-dtype",)), NO_COMMAND),
    (
        "flags.prefix_caching",
        B300,
        argv(B300, without=("--enable-prefix-caching",)),
        {**argv(B300, without=("--enable-prefix-caching",)), **version(None)},
    ),
    (
        "environment.required",
        B200,
        {"process.environment": {"VLLM_ENGINE_READY_TIMEOUT_S": "600"}},
        {"process.environment": None},
    ),
    (
        "environment.known",
        B300,
        {**environment(B300, VLLM_PREFIX_CACHE_RETENTION_INTERVAL="0"), **version("0.32.0")},
        {"process.environment": None},
    ),
    ("parsers.tools", B300, argv(B300, "--tool-call-parser", "hermes"), NO_COMMAND),
    ("parsers.reasoning", B300, argv(B300, "--reasoning-parser", "deepseek_r1"), NO_COMMAND),
    ("parsers.pairing", B300, argv(B300, without=("--enable-auto-tool-choice",)), NO_COMMAND),
]
IDS = [f"{rule}-{recipe}" for rule, recipe, _, _ in RULES]
# Rules over several nodes: what differs on the second node, and what is not known there.
BETWEEN_NODES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("driver.equal", {"gpu.driver_version": "590.44"}, {"gpu.driver_version": None}),
    ("image.same", {"container.image_id": "sha256:" + "cd" * 32}, {"container.image_id": None}),
    ("model.same", {"model_files.config_sha256": "34" * 32}, {"model_files.config_sha256": None}),
]
# Not knowing a revision is all that can happen to it, and a recipe's age is no fact of a server.
ELSEWHERE = {"model.revision", "recipe.age"}


@pytest.mark.parametrize(("rule", "recipe", "broken", "unknown"), RULES, ids=IDS)
def test_each_rule_holds_breaks_and_does_not_know(
    rule: str, recipe: str, broken: dict[str, Any], unknown: dict[str, Any]
) -> None:
    held = rule_of(chain_of(recipe, {}), rule)
    assert (held.outcome, held.mend) == (RuleOutcome.HOLDS, "")
    assert held.evidence is Label.MEASURED
    bad = rule_of(chain_of(recipe, broken), rule)
    assert bad.outcome is RuleOutcome.BROKEN
    assert bad.mend
    assert bad.wanted
    assert bad.evidence is not Label.UNAVAILABLE
    missing = rule_of(chain_of(recipe, unknown), rule)
    assert missing.outcome is RuleOutcome.UNKNOWN
    assert missing.mend
    assert missing.evidence is Label.UNAVAILABLE


@pytest.mark.parametrize(("rule", "differs", "unknown"), BETWEEN_NODES, ids=[rule for rule, _, _ in BETWEEN_NODES])
def test_rules_between_nodes(rule: str, differs: dict[str, Any], unknown: dict[str, Any]) -> None:
    assert rule_of(chain_of(B200, {}), rule).outcome is RuleOutcome.HOLDS
    assert rule_of(chain_of(B200, differs, only_node=1), rule).outcome is RuleOutcome.BROKEN
    missing = rule_of(chain_of(B200, unknown, only_node=1), rule)
    assert (missing.outcome, missing.evidence) == (RuleOutcome.UNKNOWN, Label.UNAVAILABLE)
    assert missing.mend


def test_a_model_without_revision_is_known_by_its_configuration_or_its_command() -> None:
    gone: dict[str, Any] = {"model_files.revision": None}
    assert "config.json" in rule_of(chain_of(B300, gone), "model.revision").seen
    gone["model_files.config_sha256"] = None
    assert rule_of(chain_of(B300, gone), "model.revision").outcome is RuleOutcome.UNKNOWN
    told = rule_of(chain_of(B300, {**gone, **argv(B300, "--revision", "9f62")}), "model.revision")
    assert (told.outcome, told.seen) == (RuleOutcome.HOLDS, "--revision 9f62")


def test_every_rule_is_shown_here() -> None:
    every = {result.id for name in recipe_names() for result in chain_of(name, {}).results}
    assert every == {rule for rule, *_ in RULES} | {rule for rule, *_ in BETWEEN_NODES} | ELSEWHERE


@pytest.mark.parametrize("name", recipe_names())
def test_without_any_fact_nothing_holds(name: str) -> None:
    facts = {fact: Fact.unavailable("permission denied") for fact in fitting_values(name)}
    for nodes in ([Node("n", facts)], [Node("n", {})]):
        chain = check(nodes, conditions_of(find_recipe(name)), today=TODAY)
        assert {r.id for r in chain.results if r.outcome is RuleOutcome.HOLDS} == {"recipe.age"}
        assert chain.outcome is RuleOutcome.UNKNOWN
        assert all(r.evidence is Label.UNAVAILABLE for r in chain.results if r.id != "recipe.age")


@given(st.sampled_from(recipe_names()), st.data())
@settings(max_examples=60, deadline=None)
def test_hiding_facts_of_a_good_server_never_breaks_it(name: str, data: st.DataObject) -> None:
    hidden = data.draw(st.sets(st.sampled_from(sorted(fitting_values(name)))))
    part = chain_of(name, dict.fromkeys(hidden))
    assert [r.id for r in part.results if r.outcome is RuleOutcome.BROKEN and not r.advice] == []


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


EVERY_NAME = sorted({*fitting_values(B200), "configuration.arguments", "host.numa", "host.cgroup_memory_limit"})


@given(st.dictionaries(st.sampled_from(EVERY_NAME), JSON, max_size=6))
@settings(max_examples=100, deadline=None)
def test_whatever_a_file_holds_is_an_answer_and_no_crash(changed: dict[str, Any]) -> None:
    """A fingerprint.json may come from another version, or from an editor."""
    nodes = fitting_nodes(B200, changed)
    chain = check(nodes, conditions_of(find_recipe(B200)), today=TODAY)
    assert chain.outcome in RuleOutcome
    compare_scenes(nodes[0], fitting_nodes(B200)[0]).as_json()


def test_the_drivers_ability_is_not_what_the_container_loaded() -> None:
    rule = rule_of(chain_of(B300, NO_CUDA), "cuda.runtime")
    assert rule.outcome is RuleOutcome.UNKNOWN
    assert "that the driver can run CUDA 13.0 does not tell" in rule.seen
    assert rule.places == {Place.INSIDE: None, Place.HOST: "the driver can run CUDA up to 13.0"}
    mapped = rule_of(chain_of(B300, {"inside.cuda": None, "inside.torch": None}), "cuda.runtime")
    assert mapped.seen.startswith("CUDA 13.0.96 inside (mapped by the server: ")


def test_two_versions_at_two_places_are_two_builds() -> None:
    chain = chain_of(B300, {"triage.diagnosis": {"vllm_version": "0.28.0"}})
    rule = rule_of(chain, "vllm.version")
    assert rule.outcome is RuleOutcome.BROKEN
    assert "vLLM 0.29.0 (inside) and vLLM 0.28.0 (log)" in rule.seen
    alone = rule_of(chain_of(B300, {"triage.diagnosis": None}), "vllm.version").as_json(True)
    assert (alone["outcome"], alone["missing_places"]) == ("holds", ["log"])


def test_a_build_without_a_release_number_is_not_compared() -> None:
    rule = rule_of(chain_of(B300, version("0.1.dev19262+gb6bbf29dd.d20260727")), "vllm.version")
    assert rule.outcome is RuleOutcome.UNKNOWN
    assert "cannot be compared" in rule.seen


def test_the_compat_library_lets_an_old_driver_run_a_new_runtime() -> None:
    compat = libraries("/usr/local/cuda/compat/libcuda.so.590.44.01")
    chain = chain_of(B300, {"gpu.cuda_version": "12.8", "process.libraries": compat})
    assert rule_of(chain, "cuda.driver_ability").outcome is RuleOutcome.HOLDS
    assert rule_of(chain, "driver.mapped").outcome is RuleOutcome.HOLDS


def test_a_self_built_image_needs_four_things_and_is_never_taken_for_an_official_one() -> None:
    told = SelfBuilt(commit="98dff2a8", lock="uv.lock", recipe="Dockerfile", rollback="previous tag 14")
    own = chain_of(B300, {**OWN, "container.image": f"registry.example/vllm@{IMAGE_ID}"}, self_built=told)
    assert own.outcome is RuleOutcome.HOLDS
    assert rule_of(own, "image.self_built").evidence is Label.DECLARED
    half = rule_of(chain_of(B300, OWN, self_built=SelfBuilt(lock="uv.lock")), "image.self_built")
    # The label tells the commit.
    assert half.seen.endswith("not told: recipe, rollback")
    mixed = rule_of(chain_of(B300, {}, self_built=told), "image.one_origin")
    assert mixed.outcome is RuleOutcome.BROKEN
    nodes = chain_of(B200, OWN, only_node=1)
    assert rule_of(nodes, "image.one_origin").outcome is RuleOutcome.BROKEN


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"inside.vllm": "0.30.0rc1.dev5+gabcdef01", "triage.diagnosis": None}, "official"),
        ({"inside.vllm": "0.30.0rc1.dev5+gabcdef01", "triage.diagnosis": None, "container.repo_digests": []}, "mixed"),
        ({"container.image": "vllm:mine", "container.repo_digests": []}, "self-built"),
    ],
)
def test_what_speaks_for_a_build_of_ones_own(changed: dict[str, Any], kind: str) -> None:
    from repro.domain.compatibility.image_rules import origin_kind

    asked = conditions_of(find_recipe(B300)).image
    assert origin_kind(fitting_nodes(B300, changed), asked, None) == kind


def test_a_release_tag_whose_image_is_known_is_enough_unless_it_was_moved() -> None:
    release: dict[str, Any] = {"container.image": "vllm/vllm-openai:v0.29.0"}
    assert rule_of(chain_of(B300, release), "image.pinned").outcome is RuleOutcome.HOLDS
    moved = rule_of(chain_of(B300, {**release, "container.tag_now": {"same": False}}), "image.pinned")
    assert moved.outcome is RuleOutcome.BROKEN


@pytest.mark.parametrize(
    ("vllm", "said"), [("0.27.1", "in vLLM 0.27.1 it is off"), ("0.28.0", "in vLLM 0.28.0 it is on")]
)
def test_the_default_of_hybrid_prefix_caching_is_told(vllm: str, said: str) -> None:
    changed = {**argv(B300, without=("--enable-prefix-caching",)), **version(vllm)}
    chain = chain_of(B300, changed)
    assert said in rule_of(chain, "flags.prefix_caching").seen
    assert chain.outcome is RuleOutcome.HOLDS


@pytest.mark.parametrize(
    ("name", "vllm", "outcome"),
    [
        ("VLLM_ENABLE_K3_LATENT_MOE_TAIL_FUSION", "0.32.0", RuleOutcome.BROKEN),
        ("VLLM_NO_SUCH_NAME", "0.32.0", RuleOutcome.BROKEN),
        ("VLLM_NO_SUCH_NAME", "0.29.0", RuleOutcome.UNKNOWN),
        ("VLLM_PORT_8000_TCP_ADDR", "0.32.0", RuleOutcome.HOLDS),
        ("VLLM_USE_V2_MODEL_RUNNER", "0.32.0", RuleOutcome.HOLDS),
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "0.28.0", RuleOutcome.HOLDS),
    ],
)
def test_names_that_a_version_reads_and_names_that_it_does_not(name: str, vllm: str, outcome: RuleOutcome) -> None:
    chain = chain_of(B300, {**environment(B300, **{name: "1"}), **version(vllm)})
    assert rule_of(chain, "environment.known").outcome is outcome


def test_a_renamed_variable_is_told_with_its_new_name() -> None:
    changed = {**environment(MI355X, VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4="1"), **version("0.32.0")}
    rule = rule_of(chain_of(MI355X, changed), "environment.known")
    assert "VLLM_ROCM_USE_AITER_MOE_SITUV2=a8w4" in rule.seen


@pytest.mark.parametrize(
    ("words", "vllm", "outcome"),
    [
        (("-pp", "2"), "0.28.0", RuleOutcome.BROKEN),
        (("-pp", "2"), "0.32.0", RuleOutcome.HOLDS),
        (("-pp", "1"), "0.28.0", RuleOutcome.HOLDS),
        (("-dcp", "8"), "0.28.0", RuleOutcome.BROKEN),
    ],
)
def test_flags_that_do_not_go_together_in_old_versions(words: tuple[str, ...], vllm: str, outcome: RuleOutcome) -> None:
    draft = '{"model": "RedHatAI/Kimi-K3-speculator.dspark", "method": "dspark", "num_speculative_tokens": 8}'
    changed = {**argv(B300, "--speculative-config", draft, *words), **version(vllm)}
    assert rule_of(chain_of(B300, changed), "flags.refused").outcome is outcome


def test_a_server_without_a_container_needs_no_image() -> None:
    gone = {name: None for name in fitting_values(B300) if name.startswith("container.")}
    chain = chain_of(B300, gone)
    assert chain.outcome is RuleOutcome.HOLDS
    assert "no image" in rule_of(chain, "image.pinned").seen


def test_the_driver_is_read_as_a_number() -> None:
    for driver, outcome in ((DRIVER, "holds"), ("1000.1", "holds"), ("58.0", "broken"), ("unknown", "unknown")):
        rule = rule_of(chain_of(B300, {"gpu.driver_version": driver}), "driver.version")
        assert rule.outcome.value == outcome
