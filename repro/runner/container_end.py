"""Makes sure that nothing of a server that was a container is left: not a container, not a client that makes one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from repro.machine.clock import Clock
from repro.machine.docker_engine import ContainerClient
from repro.machine.family import end_family, find_family, is_output_held
from repro.runner.container_command import LABEL
from repro.runner.record import ServerRecord, mark_ended

# A client in flight when its repro was killed ends by itself once its daemon has answered; ending it would only hide
# that the daemon is still making the container.
_IN_FLIGHT_S = 30.0
_LOOK_S = 0.1


@dataclass(frozen=True)
class ContainerEnd:
    """The ids of containers that were removed, and whether nothing is left."""

    removed: tuple[str, ...]
    gone: bool


def end_container(record: ServerRecord, client: ContainerClient, records: Path, clock: Clock) -> ContainerEnd:
    """Remove all containers with the record's label and wait for its clients.

    Raises DockerUnavailable; the record then stays open for the next sweep.
    """
    label = f"{LABEL}={record.id}"
    deadline = clock.monotonic() + _IN_FLIGHT_S
    removed: dict[str, None] = {}
    while True:
        # First the clients, then the containers: what a client made before it ended is then surely seen.
        busy = bool(find_family(record.signs)) or is_output_held(Path(record.log))
        found = client.labelled(label)
        for container in found:
            client.remove(container)
            removed[container] = None
        if not busy and not found:
            break
        if clock.monotonic() >= deadline:
            end_family(record.signs, clock, 1.0)
            if client.labelled(label):
                return ContainerEnd(tuple(removed), gone=False)
            break
        clock.sleep(_LOOK_S)
    mark_ended(records, record, clock.now())
    return ContainerEnd(tuple(removed), gone=True)
