"""How the ranks of one launch over several nodes meet on the master port, and how one notices that another is gone.

    rank 0 listens <- "rank N" from each other rank; whenever all have said "here", rank 0 says "go"

An orderly end says "bye". A connection that ends without it is a lost peer.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator

from repro.simulator.arguments import ServeArguments

_RETRY_S = 0.02
_HELLO_S = 5.0
_USUAL_PATIENCE_S = 1800.0


class PeerLost(Exception):
    """The connection to a rank ended; the text is its address, `[10.0.0.2]:4711`."""


class NobodyCame(Exception):
    """Not all ranks joined in time; the text is what torch says."""


class _Peer:
    """One connection, read line by line."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(_HELLO_S)
        host, port = connection.getpeername()[:2]
        self.address = f"[{host}]:{port}"
        self._connection = connection
        self._lines = connection.makefile("rb")

    def be_patient(self) -> None:
        """After the hello a peer may take as long as it wants."""
        self._connection.settimeout(None)

    def tell(self, word: str) -> None:
        try:
            self._connection.sendall(f"{word}\n".encode())
        except OSError:
            raise PeerLost(self.address) from None

    def hear(self) -> str:
        """The next word, "" when the connection has ended."""
        try:
            return self._lines.readline(64).decode("ascii", "replace").strip()
        except OSError:
            return ""

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


class RankGroup:
    """One rank's view of the group. With one node it is nobody to wait for and nothing to do."""

    def __init__(self, address: str, port: int, rank: int, count: int, patience_s: float = _USUAL_PATIENCE_S) -> None:
        self._address, self._port, self._rank, self._count = address, port, rank, count
        self._patience_s = patience_s
        self._peers: list[_Peer] = []

    @classmethod
    def of(cls, arguments: ServeArguments) -> RankGroup:
        """As the flags say; ValueError for a master address that is public."""
        count = int(arguments.value("nnodes"))
        address = str(arguments.value("master_addr"))
        address = "127.0.0.1" if address == "localhost" else address
        if count > 1 and not is_inside(address):
            raise ValueError(f"--master-addr {address} is neither loopback nor private, where alone the stand-in meets")
        patience = float(arguments.value("distributed_timeout_seconds") or _USUAL_PATIENCE_S)
        return cls(address, int(arguments.value("master_port")), int(arguments.value("node_rank")), count, patience)

    @property
    def joined(self) -> bool:
        return self._count == 1 or bool(self._peers)

    def join(self) -> None:
        """Wait until every rank is there. Raises NobodyCame, or OSError if rank 0 cannot have the port."""
        if not self.joined:
            self._peers = list(self._lead() if self._rank == 0 else self._follow())

    def meet(self) -> None:
        """Wait until every rank has come as far; raises PeerLost."""
        if self._rank == 0:
            for peer in self._peers:
                _expect(peer, "here")
        for peer in self._peers:
            peer.tell("here" if self._rank else "go")
        if self._rank:
            for peer in self._peers:
                _expect(peer, "go")

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """From here on tell of a lost peer, by its address; a peer that says good-bye is none."""
        for peer in self._peers:
            threading.Thread(target=_listen, args=(peer, on_lost), daemon=True).start()

    def farewell(self) -> None:
        """Say that this end is orderly."""
        for peer in self._peers:
            try:
                peer.tell("bye")
            except PeerLost:
                continue

    def _lead(self) -> Iterator[_Peer]:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        deadline = time.monotonic() + self._patience_s
        came: dict[int, _Peer] = {}
        with socket.create_server((self._address, self._port), family=family) as door:
            while len(came) < self._count - 1:
                door.settimeout(max(deadline - time.monotonic(), 0.001))
                try:
                    connection, _ = door.accept()
                except TimeoutError:
                    raise NobodyCame(self._complaint(f"{len(came) + 1}/{self._count} clients joined.")) from None
                self._welcome(connection, came)
        return iter(came.values())

    def _welcome(self, connection: socket.socket, came: dict[int, _Peer]) -> None:
        peer = _Peer(connection)
        word, _, number = peer.hear().partition(" ")
        rank = int(number) if word == "rank" and number.isdecimal() else 0
        if 0 < rank < self._count and rank not in came:
            peer.be_patient()
            came[rank] = peer
        else:
            peer.close()  # a stranger, who knows no rank of this group

    def _follow(self) -> Iterator[_Peer]:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                peer = _Peer(socket.create_connection((self._address, self._port), timeout=_HELLO_S))
            except OSError:
                if time.monotonic() > deadline:
                    raise NobodyCame(self._complaint(f"no answer from {self._address}:{self._port}.")) from None
                time.sleep(_RETRY_S)
                continue
            peer.tell(f"rank {self._rank}")
            peer.be_patient()
            return iter((peer,))

    def _complaint(self, state: str) -> str:
        waited = f"Timed out after {self._patience_s + 1:.0f} seconds waiting for clients."
        return f"torch.distributed.DistStoreError: {waited} {state}"


def is_inside(address: str) -> bool:
    """Whether an address is this machine's loopback or a private network's, such as a namespace has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return found.is_loopback or (found.is_private and not found.is_unspecified)


def _expect(peer: _Peer, word: str) -> None:
    if peer.hear() != word:
        raise PeerLost(peer.address)


def _listen(peer: _Peer, on_lost: Callable[[str], None]) -> None:
    if peer.hear() != "bye":
        on_lost(peer.address)
