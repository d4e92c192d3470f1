"""Packs repro and everything it depends on into one tar for a node without internet.

Wheels with compiled code fit one Python minor version and one platform, so the tar is named after both and its
install.sh refuses others instead of letting pip fail halfway. Run by the interpreter that the node has too:
`PYTHON=python3.12 make wheelhouse`.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
INSTALLER = Path(__file__).with_name("wheelhouse-install.sh")
DISTRIBUTION = "vllm_repro"


def collect(folder: Path) -> None:
    """Puts the wheel of this checkout and of every dependency into `folder`, built where only sources exist."""
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        python = Path(scratch) / "bin" / "python"
        subprocess.run(
            [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir", folder, REPO],
            check=True,
        )


def pack(wheels: Path, dist: Path, python: str, platform: str) -> Path:
    """Writes the tar from a folder of wheels and returns its path.

    `python` is the minor version ("3.12"), `platform` as sysconfig names it ("linux-x86_64"). One folder inside, named
    like the tar: wheels/, install.sh and SHA256SUMS (which covers all the rest).
    """
    version = next(wheels.glob(f"{DISTRIBUTION}-*.whl")).name.split("-")[1]
    name = f"vllm-repro-wheelhouse-{version}-py{python}-{platform}"
    installer = INSTALLER.read_text(encoding="utf-8").replace("@PYTHON@", python).replace("@PLATFORM@", platform)
    target = dist / f"{name}.tar"
    dist.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(target, "w") as tar:
        script = Path(scratch) / "install.sh"
        script.write_text(installer, encoding="utf-8")
        script.chmod(0o755)
        members = {"install.sh": script, **{f"wheels/{wheel.name}": wheel for wheel in sorted(wheels.glob("*.whl"))}}
        sums = Path(scratch) / "SHA256SUMS"
        sums.write_text("".join(f"{digest(file)}  {member}\n" for member, file in members.items()), encoding="utf-8")
        for member, file in {"SHA256SUMS": sums, **members}.items():
            tar.add(file, f"{name}/{member}", filter=anonymous)
    return target


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Keeps the builder's account and the day of the build out of the tar: the same wheels give the same bytes."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def main() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    with tempfile.TemporaryDirectory() as scratch:
        wheels = Path(scratch)
        collect(wheels)
        target = pack(wheels, REPO / "dist", python, sysconfig.get_platform())
    print(f"{target.relative_to(REPO)}  {target.stat().st_size / 1e6:.1f} MB  sha256 {digest(target)}")
    print(f"On the node (Python {python}): tar xf {target.name} && {target.stem}/install.sh /opt/vllm-repro")


if __name__ == "__main__":
    main()
