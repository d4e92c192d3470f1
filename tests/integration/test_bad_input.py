"""What tired people and full machines do: each a message that says what, where and how to mend it, and its code."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repro.cli.main import run
from tests.integration.cli_bed import MANY_SEQUENCES, Bed, Done

FLAGS = ("--max-num-seqs", "64")
SIMULATOR = (sys.executable, "-m", "repro.simulator", "serve")
SCENARIO = """\
schema = "repro/scenario"
version = 1
name = "x"
recipe = "generic"
[minimal]
command = ["vllm", "serve", "m/x"]
[production]
command = ["vllm", "serve", "m/x", "--max-num-seqs", "64"]
[[variable]]
name = "--max-num-seqs"
"""


def said(done: Done, code: int, *words: str) -> None:
    """Ended with this code, and stderr holds these words; never a traceback, and nothing on stdout."""
    assert done.code == code, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def nothing_begun(bed: Bed) -> bool:
    return not any((bed.folder / ".repro").glob("sessions/*")) and not any((bed.folder / ".repro").glob("runs/*"))


BAD_WORDS = {
    "an unknown flag": (("bisect", "--inputtokens", "5", "--", "vllm", "serve", "m"), ("--inputtokens", "--input-t")),
    "an unknown command": (("bisct",), ("bisct",)),
    "no command at all": (("bisect",), ("after `--`", "repro bisect --input-tokens 60000 -- vllm serve")),
    "no model": (("run", "--", "vllm", "serve", "--max-num-seqs", "4"), ("no model", "vllm serve MODEL")),
    "no vLLM": (("run", "--", "nginx", "-g", "x"), ("`nginx -g x`", "not start a vLLM", "vllm serve MODEL")),
    "a wrapper": (("run", "--", "./start.sh"), ("./start.sh", "--pid", "--container")),
    "a missing program": (("run", "--", "/nowhere/vllm", "serve", "m"), ("/nowhere/vllm", "full path")),
    "a missing program of a search": (
        ("bisect", "--", "/nowhere/vllm", "serve", "m", *FLAGS),
        ("/nowhere/vllm", "full path"),
    ),
    "a missing scenario": (("bisect", "none.toml"), ("none.toml", "cannot be read")),
    "a scenario and a command": (
        ("bisect", "--scenario", "none.toml", "--", "vllm", "serve", "m"),
        ("a scenario and a command", "one of the two"),
    ),
    "a target that is none": (("run", "--target", "boot/oom", "--", *SIMULATOR, "m"), ("boot/oom", "engine_init")),
    "a stage that is none": (("run", "--stop-after", "boot", "--", *SIMULATOR, "m"), ("boot", "weight_access")),
    "a precision that is none": (("bisect", "--precision", "5", "--", "vllm", "serve", "m"), ("'5'", "exact")),
    "an unknown recipe": (("run", "--recipe", "no", "--", *SIMULATOR, "m"), ("'no'", "kimi-k3-b300")),
    "a missing request": (("run", "--request", "no.json", "--", *SIMULATOR, "m"), ("no.json", "cannot be read")),
    "a resume of nothing": (("bisect", "--resume"), ("no session", "begin one")),
    "a resume of a session that is not there": (("bisect", "--resume", "--session", "7"), ("no session 7",)),
    "a resume with a command": (("bisect", "--resume", "--", "vllm", "serve", "m"), ("leave the command away",)),
}


Here = Callable[..., Done]


@pytest.fixture
def here(bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """A command line run in this process, for what ends before anything is started: half a second less for each."""
    monkeypatch.chdir(bed.folder)
    for name in ("HF_TOKEN", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def run_here(*words: str) -> Done:
        code = run(list(words))
        return Done(code, *capsys.readouterr())

    return run_here


@pytest.mark.parametrize("case", BAD_WORDS)
def test_wrong_words_are_told_with_their_mend_and_begin_nothing(bed: Bed, here: Here, case: str) -> None:
    words, parts = BAD_WORDS[case]
    said(here(*words), 2, *parts)
    assert nothing_begun(bed)


BAD_SCENARIOS = {
    "no TOML": ('name = "x"\nminimal = [\n', ("s.toml:", "not valid TOML")),
    "an unknown key": (SCENARIO.replace("recipe", "recepie"), ("s.toml:4", "recepie", "Did you mean 'recipe'")),
    "a wrong type": (SCENARIO.replace('"m/x"]\n[prod', '"m/x"]\ninput_tokens = "many"\n[prod'), ("s.toml:7", "input")),
    "a variable that names no flag": (SCENARIO.replace('name = "--max-num-seqs"', 'name = "--dtype"'), ("s.toml:10",)),
    "a command that is not vLLM": (SCENARIO.replace('"vllm", "serve", "m/x"]', '"nginx"]'), ("nginx",)),
}


@pytest.mark.parametrize("case", BAD_SCENARIOS)
def test_a_wrong_scenario_is_told_with_file_line_and_mend(bed: Bed, here: Here, case: str) -> None:
    text, parts = BAD_SCENARIOS[case]
    (bed.folder / "s.toml").write_text(text)
    said(here("bisect", "s.toml"), 2, *parts)
    assert nothing_begun(bed)


def test_git_bisect_takes_wrong_usage_for_a_stop(bed: Bed, here: Here) -> None:
    """To `git bisect run`, 2 is a bad commit and 128 the end of the search."""
    said(here("run", "--git-bisect", "--", "nginx"), 128, "nginx")
    said(bed.repro("run", "--git-bisect", "--no-such-flag"), 128, "--no-such-flag")


def test_a_secret_that_is_not_set_here_is_named_before_anything_starts(bed: Bed, here: Here) -> None:
    scenario = SCENARIO.replace("[minimal]", '[environment]\nenv_from = ["HF_TOKEN"]\n[minimal]')
    (bed.folder / "s.toml").write_text(scenario.replace('"vllm"', f'"{sys.executable}", "-m", "repro.simulator"'))
    said(here("bisect", "s.toml"), 2, "HF_TOKEN", "export HF_TOKEN")
    assert nothing_begun(bed)


def test_a_workspace_that_cannot_be_written_is_told(bed: Bed, here: Here) -> None:
    (bed.folder / ".repro" / "sessions").write_text("in the way")
    said(here(*bed.search(flags=FLAGS)), 2, str(bed.folder / ".repro"), "cannot be written", "may write")


def test_the_search_works_without_git_and_a_resume_makes_the_history(bed: Bed) -> None:
    (bed.folder / "bin").mkdir()
    bed.faults(MANY_SEQUENCES)
    done = bed.repro(*bed.search("--json", flags=FLAGS), PATH=str(bed.folder / "bin"))
    assert done.code == 0, done.stderr
    assert done.stderr.count("git was not found") == 1
    assert not (bed.session / "history.git").exists()
    assert bed.resume().code == 0
    assert (bed.session / "history.git" / "HEAD").exists()


def test_a_second_search_and_a_full_disk_lose_nothing(bed: Bed) -> None:
    """While one search runs, another is refused and cleaning leaves its server; then the disk refuses its journal."""
    slow = {"stage": "weight_access", "family": "hang", "do": "slow", "delay_s": 3}
    bed.faults(slow, MANY_SEQUENCES)
    process = bed.start(*bed.search(flags=FLAGS))
    bed.wait_said(process, "comm_group done")
    first = bed.folder / "stderr.txt"
    first.rename(bed.folder / "first.txt")
    said(bed.repro(*bed.search(flags=FLAGS)), 125, f"in use by bisect (pid {process.pid})", "another folder")
    assert "nothing was left behind" in bed.repro("clean").stdout
    assert bed.servers(), "a server of a living search is nobody's to clean"
    (bed.folder / "first.txt").rename(first)
    size = (bed.session / "journal.jsonl").stat().st_size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size + 20, size + 20))
    said(bed.end(process), 125, "journal.jsonl", "cannot be written", "repro bisect --resume")
    assert bed.servers() == []
    bed.faults(MANY_SEQUENCES)
    found = bed.resume()
    assert found.code == 0, found.stderr
    assert len({t["id"] for t in found.json["trials"]}) == len(found.json["trials"])


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A search of a local model whose budget ended it after one launch. Copied by `stopped`, never changed."""
    bed = Bed(tmp_path_factory.mktemp("begun"))
    bed.faults(MANY_SEQUENCES)
    model = bed.folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"architectures": ["X"], "max_position_embeddings": 4096}))
    words = [str(model) if word == "moonshotai/Kimi-K3" else word for word in bed.search("--json", flags=FLAGS)]
    done = bed.repro(words[0], "--budget-launches", "1", *words[1:])
    assert done.code == 10, done.stderr
    yield bed
    bed.close()


@pytest.fixture
def stopped(begun: Bed, bed: Bed) -> Bed:
    shutil.copytree(begun.folder / ".repro", bed.folder / ".repro", dirs_exist_ok=True)
    return bed


def test_a_resume_with_a_changed_scenario_is_refused(stopped: Bed) -> None:
    path = stopped.session / "scenario.toml"
    path.write_text(path.read_text() + "\n# a thought\n")
    done = stopped.repro("bisect", "--resume")
    said(done, 2, str(path), "was changed", f"repro bisect {path}")
    path.unlink()
    assert stopped.repro("bisect", "--resume", "--budget-launches", "1").code == 10, "deleted, it is put back"


def test_a_broken_journal_line_is_named(stopped: Bed, here: Here) -> None:
    path = stopped.session / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "oops\n", *lines[2:]]))
    said(here("bisect", "--resume"), 2, f"{path}, line 2", "no journal event")


def test_a_session_that_never_began_is_told(stopped: Bed, here: Here) -> None:
    (stopped.session / "journal.jsonl").write_text("")
    said(here("bisect", "--resume"), 2, "before it began", "new search")


def test_a_session_without_a_journal_is_told(stopped: Bed, here: Here) -> None:
    (stopped.session / "journal.jsonl").unlink()
    said(here("bisect", "--resume"), 2, "journal.jsonl")


def test_a_model_that_was_changed_before_the_resume_ends_the_session(stopped: Bed, begun: Bed) -> None:
    config = begun.folder / "model" / "config.json"
    before = config.read_text()
    config.write_text(before.replace("4096", "8192"))
    try:
        said(stopped.repro("bisect", "--resume"), 125, "scene has moved", "model_files.config_sha256")
    finally:
        config.write_text(before)
    assert stopped.servers() == []


def test_a_reader_that_leaves_is_no_traceback(bed: Bed) -> None:
    process = bed.start("--help")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    done = bed.end(process)
    assert "Traceback" not in done.stderr
    assert done.code == 141, "1 would say that a failure was seen"


def test_a_hang_up_ends_a_search_like_ctrl_c(bed: Bed) -> None:
    """The connection to the node breaks: the search stops its server and can be resumed."""
    bed.faults({"stage": "weight_access", "family": "hang", "do": "slow", "delay_s": 300})
    process = bed.start(*bed.search(flags=FLAGS))
    bed.wait_said(process, "comm_group done")
    process.send_signal(signal.SIGHUP)
    assert bed.end(process).code == 130
    assert bed.servers() == []


def test_the_workspace_of_a_folder_above_is_used(bed: Bed) -> None:
    inner = Path("deep") / "er"
    (bed.folder / inner).mkdir(parents=True)
    assert str(bed.folder / ".repro") in bed.repro("clean").stdout
    bed.folder = bed.folder / inner
    assert str(bed.folder.parent.parent / ".repro") in bed.repro("clean").stdout
