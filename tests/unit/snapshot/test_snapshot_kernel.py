"""Kernel messages: from a file that ends like /dev/kmsg, from dmesg, and from nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.domain.fingerprint import Fact
from repro.errors import MissingProgram
from repro.machine.subprocesses import Completed
from repro.redact.redactor import Redactor
from repro.snapshot import kernel
from repro.snapshot.capture import capture
from repro.snapshot.collector import Context
from repro.snapshot.kernel import KernelCollector

XID = "NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OOM = "Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:1kB, anon-rss:2kB"


def collect(root: Path) -> dict[str, Fact]:
    return dict(capture(Context(Redactor(), root=root), [KernelCollector()]).facts["kernel"])


def test_xids_and_killed_processes_stand_out(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text(
        f"6,1,2000000,-;usb 1-1: new device\n4,2,3500000,-;{XID}\n SUBSYSTEM=pci\n3,3,4000000,-;{OOM}\n"
    )
    facts = collect(tmp_path)
    assert [message["text"] for message in facts["messages"].value] == [XID, OOM]
    (xid,) = facts["xids"].value
    assert (xid["device"], xid["number"]) == ("PCI:0000:17:00", 79)
    assert facts["oom_kills"].value[0]["text"] == OOM
    assert facts["oom_kills"].value[0]["time"] - xid["time"] == pytest.approx(0.5)


def told(code: int, text: str) -> Completed:
    return Completed(("dmesg",), code, text, "", timed_out=False, seconds=0.1)


def test_dmesg_is_asked_where_the_device_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "run", lambda *_: told(0, f"[    3.500000] {XID}\nodd\n[    4.0] hello\n"))
    facts = collect(tmp_path)
    assert len(facts["messages"].value) == 1
    assert facts["messages"].reason == "dmesg"


def test_the_privilege_that_would_give_them_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "run", lambda *_: told(1, ""))
    assert "needs root or CAP_SYSLOG" in collect(tmp_path)["messages"].reason

    def none(*_: object) -> Completed:
        raise MissingProgram("no dmesg")

    monkeypatch.setattr(kernel, "run", none)
    assert "needs root or CAP_SYSLOG" in collect(tmp_path)["xids"].reason
