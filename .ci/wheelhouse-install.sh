#!/bin/sh
# Installs repro from the wheels beside this file into a new virtual environment, without any network.
#   ./install.sh [FOLDER]                  FOLDER is made; ./vllm-repro when not given
#   PYTHON=/usr/bin/python@PYTHON@ ./install.sh   chooses the interpreter
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
target=${1:-./vllm-repro}
python=${PYTHON:-python3}

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

command -v "$python" >/dev/null 2>&1 || fail "$python is not on this machine. Name a Python @PYTHON@: PYTHON=/path/to/python@PYTHON@ $0"
found=$("$python" -c 'import sys, sysconfig; print("%d.%d" % sys.version_info[:2], sysconfig.get_platform())')
[ "$found" = "@PYTHON@ @PLATFORM@" ] ||
  fail "these wheels are for Python @PYTHON@ on @PLATFORM@, and $python is Python $found. Name another interpreter: PYTHON=/path/to/python@PYTHON@ $0"
[ ! -e "$target" ] || fail "$target exists already and is left as it is. Name a new folder: $0 FOLDER"

# Python counts the checksums, for neither sha256sum nor shasum is everywhere.
"$python" - "$here" <<'CHECK' || fail "the files are not as they were packed. Copy the tar again and compare its checksum."
import hashlib, pathlib, sys

folder = pathlib.Path(sys.argv[1])
for line in (folder / "SHA256SUMS").read_text().splitlines():
    digest, name = line.split("  ", 1)
    file = folder / name
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
        sys.exit("damaged or missing: " + name)
CHECK

"$python" -m venv "$target" || fail "no virtual environment could be made in $target (on Debian and Ubuntu it takes the package python3-venv)."
# The null configuration keeps a site's own package index out of it: only the wheels here count.
PIP_CONFIG_FILE=/dev/null "$target/bin/python" -m pip --isolated install --quiet --disable-pip-version-check \
  --no-index --find-links "$here/wheels" vllm-repro
"$target/bin/repro" --version
echo "installed: $target/bin/repro"
