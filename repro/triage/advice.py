"""What a family means and where to look next, in words for somebody who has never seen the fault.

Only what follows from the family itself. No memory or cache advice stands with a family that is none of memory, and
nothing here repeats the root line.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.domain.failure import Family
from repro.domain.stage import Stage


@dataclass(frozen=True)
class Advice:
    """`means`: what is wrong. `look`: what to check first."""

    means: str
    look: str


_BY_FAMILY: dict[Family, Advice] = {
    Family.CUDA_INIT: Advice(
        "The accelerator cannot be opened.",
        "Run nvidia-smi (rocm-smi, xpu-smi) in the same container; check --gpus, CUDA_VISIBLE_DEVICES, other users.",
    ),
    Family.DRIVER_MISMATCH: Advice(
        "The host's driver does not fit the CUDA of the image.",
        "Compare nvidia-smi's driver with what the image asks for; take an older image or a newer driver.",
    ),
    Family.OOM_GPU: Advice(
        "The GPU has less free memory than is asked for.",
        "See with nvidia-smi who else holds memory; then --gpu-memory-utilization, --max-num-seqs, --max-model-len.",
    ),
    Family.OOM_HOST: Advice(
        "The host, or the container's limit, has too little memory.",
        "dmesg | grep -i oom, the container's OOMKilled and memory limit, free -g while it loads.",
    ),
    Family.KV_CACHE_TOO_SMALL: Advice(
        "After the weights, too little memory is left for the cache that one request needs.",
        "Lower --max-model-len, or raise --gpu-memory-utilization where nobody else needs the memory.",
    ),
    Family.NCCL: Advice(
        "The GPUs cannot talk to each other.",
        "Run again with NCCL_DEBUG=INFO; check NCCL_SOCKET_IFNAME, /dev/shm, the fabric, and the other ranks' logs.",
    ),
    Family.GLOO: Advice(
        "The CPU side of the group failed, mostly because a peer went away or an interface is not there.",
        "The other rank's log first; then GLOO_SOCKET_IFNAME and the address each node announces.",
    ),
    Family.RENDEZVOUS_TIMEOUT: Advice(
        "The ranks did not all arrive at the meeting point.",
        "The log of the rank that is missing; then --master-addr, its port and the firewall between the nodes.",
    ),
    Family.WEIGHTS_MISSING: Advice(
        "A file of the model is not where it is looked for.",
        "List the model's directory inside the container; check the mount, the name and a half download.",
    ),
    Family.WEIGHTS_CORRUPT: Advice(
        "The files are there, but cut short, or they are not of this model.",
        "Compare sizes and checksums with the source; download again; check that config.json belongs to the weights.",
    ),
    Family.PERMISSION: Advice(
        "Something may not be read or written.",
        "Compare the user of the container with the owner of the path named; for a hub, check the token's access.",
    ),
    Family.HUB_UNREACHABLE: Advice(
        "The model is not on this machine, and its hub cannot be reached.",
        "Name resolution, proxy and HF_HUB_OFFLINE; or download first and give the path.",
    ),
    Family.CONFIG_INVALID: Advice(
        "A setting is well formed, but this model, card or release refuses it.",
        "The root line names it; take that setting away and add the others back one at a time.",
    ),
    Family.UNSUPPORTED_ARCH: Advice(
        "The files are sound, but this release does not know the model.",
        "Use the release that the model's card names, with the transformers version that goes with it.",
    ),
    Family.KERNEL_COMPILE: Advice(
        "A kernel cannot be built, or was not built for this card.",
        "Compiler, CUDA toolkit and cache directory of the container; whether the build has this card's architecture.",
    ),
    Family.ILLEGAL_MEMORY_ACCESS: Advice(
        "A kernel touched memory that is not its own. The place reported may be later than the fault.",
        "Run again with CUDA_LAUNCH_BLOCKING=1; look for Xid lines in dmesg; try without graphs to narrow it down.",
    ),
    Family.SHM: Advice(
        "The shared memory between the processes is too small or cannot be made.",
        "df -h /dev/shm in the container; start it with --shm-size or --ipc=host.",
    ),
    Family.PORT_IN_USE: Advice(
        "Another process holds the port.",
        "ss -ltnp | grep the port; often it is an earlier server of the same machine.",
    ),
    Family.ENGINE_DEAD: Advice(
        "A process went away, and this log does not say why.",
        "dmesg on that node, the container's OOMKilled and exit code, and the logs of the other ranks.",
    ),
    Family.TIMEOUT: Advice(
        "A step did not end in the time it is allowed.",
        "The other ranks' logs for the same minute; stacks of the workers (py-spy dump) while it hangs.",
    ),
    Family.HANG: Advice(
        "Nothing more is printed, and nothing says why.",
        "Stacks of all processes (py-spy dump --pid); the logs of the other nodes: one may never have come.",
    ),
    Family.TOOL_PARSER: Advice(
        "The server answers, but a tool call in an answer cannot be read.",
        "Whether --tool-call-parser is the one of this model; the raw answer of the request.",
    ),
    Family.PREFIX_CACHE: Advice(
        "The bookkeeping of cached prompt blocks went wrong.",
        "Whether it also happens with --no-enable-prefix-caching; the two requests that share a prompt.",
    ),
    Family.IMPORT_ERROR: Advice(
        "A package is missing, or of another build than the rest.",
        "pip list in the container against the release's requirements; anything installed on top of the image.",
    ),
    Family.ARG_ERROR: Advice(
        "The command line is refused.",
        "The option named, in this release's --help: options come and go between releases.",
    ),
    Family.IMAGE_MISSING: Advice(
        "The container image is not on the machine and could not be had.",
        "The tag, the registry's address and the credentials; docker pull by hand.",
    ),
    Family.ENTRYPOINT: Advice(
        "The container started, but not the program that is asked for.",
        "The command and its path inside the image; the image's processor architecture.",
    ),
    Family.CONTEXT_LENGTH: Advice("A request is longer than allowed.", "Its token count against --max-model-len."),
    Family.BAD_OUTPUT: Advice("The answers are wrong.", "The same request on the last configuration that was right."),
    Family.HTTP_ERROR: Advice("Requests fail inside the server.", "The lines just before the first 500."),
}
_OTHER = Advice(
    "The fault has no family of its own; the root line is all that is known of it.",
    "The root line with the traceback around it; search it, without its numbers, in vLLM's issues.",
)
EXPECTED: dict[Stage, str] = {
    Stage.CONTAINER_INIT: "vLLM's banner with its version",
    Stage.DEVICE_RECOGNITION: "`Automatically detected platform …` (DEBUG from 0.12 on) or the first `world_size=…`",
    Stage.COMM_GROUP: "`rank 0 in world size N is assigned as …`",
    Stage.WEIGHT_ACCESS: "`Loading weights took …`",
    Stage.ENGINE_INIT: "`init engine (profile, create kv cache, warmup model) took …`",
    Stage.API_READY: "`Application startup complete.` or `OpenAI server is ready to accept requests`",
    Stage.SERVING: "a request answered with 200",
}


def advice_for(family: Family) -> Advice:
    """What a failure of `family` means and what to check first."""
    return _BY_FAMILY.get(family, _OTHER)
