"""The arguments that vLLM prints are turned back into a command."""

from __future__ import annotations

import pytest

from repro.domain.command import parse, parse_non_default_args
from repro.domain.command.command import Command


def read(line: str) -> Command:
    command = parse_non_default_args(line)
    assert command is not None
    return command


def test_a_line_of_0_32() -> None:
    line = (
        "(APIServer pid=1) INFO 12-01 10:18:36 [api_utils.py:286] non-default args: {'model_tag': '/models/tiny', "
        "'api_server_count': 1, 'host': '127.0.0.1', 'port': 8231, 'model': '/models/tiny', 'max_model_len': 1024, "
        "'enforce_eager': True, 'hf_overrides': {'max_position_embeddings': 8000000}, 'enable_prefix_caching': False, "
        "'served_model_name': ['a', 'b'], 'middleware': ['x.y', 'z.w']}\r"
    )
    command = read(line)
    assert " ".join(command.argv()) == (
        "vllm serve /models/tiny --api-server-count 1 --host 127.0.0.1 --port 8231 --max-model-len 1024 "
        '--enforce-eager --hf-overrides {"max_position_embeddings": 8000000} --no-enable-prefix-caching '
        "--served-model-name a b --middleware x.y --middleware z.w"
    )
    assert parse(command.argv()) == command
    assert command.unread == ()


def test_objects_are_read_where_they_can_be_and_named_where_not() -> None:
    command = read(
        "INFO [utils.py:253] non-default args: {'model_tag': 'm', 'lora_modules': [LoRAModulePath(name='sql', "
        "path='/l/sql', base_model_name=None)], "
        "'compilation_config': CompilationConfig(level=3, sizes=[1, 2], x=None), "
        "'pooler_config': <object at 0x7f>, 'kv_events_config': KVEventsConfig(port=-1, y=f()(1)), "
        "'dtype': torch.bfloat16, "
        "'attention_backend': AttentionBackendEnum.FLASH_ATTN, 'optimization_level': <OptimizationLevel.O3: 3>, "
        "'kv_transfer_config': {\"kv_role\": \"kv_both\", \"x\": null}, 'api_key': '***', 'hf_token': None}"
    )
    assert command.flag("--lora-modules") == ("sql=/l/sql",)
    assert command.flag("--attention-backend") == "FLASH_ATTN"
    assert command.flag("--optimization-level") == "3"
    assert command.flag("--kv-transfer-config") == '{"kv_role": "kv_both", "x": null}'
    assert command.flag("--compilation-config") == '{"level": 3, "sizes": [1, 2]}'
    assert command.flag("--dtype") == "bfloat16"
    assert command.unread == ("--pooler-config", "--kv-events-config", "--api-key")


def test_lines_without_a_model_tag_of_0_9() -> None:
    line = (
        "\x1b[36mINFO\x1b[0m 07-24 17:34:57 [cli_args.py:325] non-default args: {'model': '/mnt/glm4.1v', "
        "'tensor_parallel_size': 2, 'device': 'neuron'} INFO 07-24 17:35:04 {'embed'}"
    )
    assert " ".join(read(line).argv()) == "vllm serve /mnt/glm4.1v --tensor-parallel-size 2 --device neuron"


def test_a_namespace_of_older_versions() -> None:
    command = read(
        "INFO 02-01 api_server.py:712] args: Namespace(host='0.0.0.0', port=5001, api_key='<redacted>', "
        "disable_frontend_multiprocessing=False, model='mistralai/Pixtral-12B-2409', task='auto', chat_template=None, "
        "gpu_memory_utilization=0.9, allowed_origins=['*'], limit_mm_per_prompt={'image': 5}, "
        "worker_use_ray=True, dispatch_function=<function serve at 0x7f3a>)"
    )
    assert command.program == ("python3", "-m", "vllm.entrypoints.openai.api_server")
    assert " ".join(command.argv()[3:]) == (
        "--model mistralai/Pixtral-12B-2409 --host 0.0.0.0 --port 5001 --task auto --gpu-memory-utilization 0.9 "
        '--allowed-origins ["*"] --limit-mm-per-prompt {"image": 5} --worker-use-ray'
    )
    assert command.unread == ("--api-key",)
    assert parse(command.argv()).flag("--model") == command.model


@pytest.mark.parametrize(
    "line",
    [
        "",
        "INFO Starting vLLM server on http://0.0.0.0:8000",
        "non-default args: {'model': '/models/view', 'tensor_parallel_si",
        "non-default args: {}x",
    ],
)
def test_a_line_without_arguments_or_cut_off(line: str) -> None:
    command = parse_non_default_args(line)
    assert command is None or (command.model is None and command.flags == ())


def test_quotes_and_brackets_inside_values_do_not_disturb() -> None:
    command = read("""non-default args: {'model_tag': "it's, {a} 'm'", 'chat_template': '{% if a: [b], "c\\'" %}'}""")
    assert command.model == "it's, {a} 'm'"
    assert command.flag("--chat-template") == """{% if a: [b], "c'" %}"""
