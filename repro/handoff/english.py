"""Every sentence of the report and the scripts, in English. Another language is another table of the same keys."""

from __future__ import annotations

from collections.abc import Mapping

KEYS: Mapping[str, str] = {
    # The headline, by how the search ended.
    "found": "{signature} when {members}. Proven on fresh servers.",
    "found_weak": "{signature} when {members}. Found, NOT proven.",
    "minimal_fails": "The minimal command fails by itself with {signature}. No flag of production is to blame.",
    "not_reproduced": "NOT REPRODUCED: production passes on this machine.",
    "end_not_as_claimed": "Production fails, but NOT AS CLAIMED: it shows {signature}.",
    "inconclusive": "INCONCLUSIVE: the search did not end in a finding.",
    "unfinished": "UNFINISHED: the search was ended before it had a result.",
    "shown": "Shown {failed} where it should fail, passed {passed} where it should pass.",
    "shown_failed": "Shown {failed}.",
    "end_passed": "This configuration passed {passed}; a fault that shows in up to {percent} % of trials may have "
    "been missed.",
    "tally": "{count} of {of} times (95 % interval: {low} to {high} %)",
    "member": "{name} is {failing} (passes at {passing})",
    "note": "What the search says: {note}.",
    "simulated": "This session ran on the simulator that is built into repro, not on a real vLLM.",
    # Headings.
    "h_title": "{scene}: what breaks",
    "h_pair": "The pair that proves {variable}",
    "h_pair_unproven": "The pair for {variable} (not run for proof)",
    "h_side": "What was run",
    "h_commands": "Commands",
    "h_root": "The root line in its log",
    "h_stages": "How far each side came",
    "h_trials": "Timeline of all trials",
    "h_stable": "Stable baselines",
    "h_set_aside": "Set aside: other errors on the way, not followed",
    "h_environment": "Environment",
    "h_ruled_out": "What was ruled out",
    "h_not_known": "What is not known, and what limits this result",
    "h_again": "How to run it again",
    "h_files": "What else is in this bundle",
    # The pair.
    "t_variable": "variable",
    "t_passing": "passes",
    "t_failing": "fails",
    "t_unresolved": "could not be judged",
    "t_value": "value",
    "t_differs": "the one difference",
    "differs": "**<-- differs**",
    "trial": "trial {id}",
    "pair_holds": "Each side was started on a fresh server: the left one passed, the right one failed.",
    "pair_masked": "MASKED: the side that should pass fails with another error, so this pair proves nothing.",
    "pair_broken": "DID NOT HOLD: the pair did not come out again on fresh servers.",
    "pair_unproven": "Both sides were tried, but not again on fresh servers for proof.",
    "bracket": "{name}: largest passing value {passing}, smallest failing value {failing} ({reason}).",
    "exceptions": "{name} is no plain threshold: the other way round at {values}.",
    "same_command": "Both sides run the same command; the request differs.",
    "passing_command": "Passes:",
    "failing_command": "Fails:",
    "only_command": "The command:",
    "request": "POST {path}, bodies: {bodies}, at once: {at_once}, prompt tokens: {tokens}. The bodies: {files}.",
    "request_unknown": "not told",
    "request_masked": "A secret in a body was masked, so it is no longer the exact request.",
    "request_absent": "The bodies of this trial were not kept. They must be built with the server's own tokenizer, by:",
    "request_omitted": "{count} further bodies were sent and not kept.",
    # Root and stages.
    "root": "{signature}, line {number} of {log}, marked by `>`; {before} lines before and {after} after are in "
    "{file}.",
    "root_again": "{signature}, line {number} of {log}; with its context in {file}.",
    "no_root": "No line of the log tells the cause; these are the last lines of {log}. What the answer said: {detail}",
    "no_log": "The log of this trial was not kept.",
    "no_failure": "This trial did not fail.",
    "other_error": "The passing side of this pair failed with {signature}.",
    "stage": "stage",
    "stage_done": "done",
    "stage_fails": "**FAILS here**",
    "stage_not": "not reached",
    # Trials.
    "t_number": "n",
    "t_purpose": "why",
    "t_changed": "changed from its parent",
    "t_parent": "parent",
    "t_outcome": "outcome",
    "t_requests": "requests as expected",
    "t_server": "server",
    "t_seconds": "s",
    "t_remark": "",
    "fresh": "new",
    "warm": "warm",
    "end_production": "all of production",
    "end_minimal": "the minimal command",
    "nothing_changed": "nothing",
    "more_changed": "and {count} more",
    "remark_stable": "{tag}",
    "remark_set_aside": "set aside, not followed",
    "remark_back": "ROLLED BACK to {tag}",
    "costs": "{trials} trials, {launches} launches, {requests} requests, {seconds} s, {gpu_hours} GPU-hours.",
    "t_tag": "tag",
    "t_tally": "passed",
    "t_left": "failure rate that leaves possible",
    "below": "up to {percent} %",
    "t_error": "error",
    "t_root": "root line",
    # Environment.
    "t_fact": "fact",
    "t_label": "evidence",
    "t_kind": "kind",
    "pinned": "pinned",
    "observed": "observed",
    "unavailable": "unavailable: {reason}",
    "recipe": "Recipe {name} ({digest}). The facts are those of the session's start; a pinned one that had moved would "
    "have ended the session.",
    # Ruled out, not known.
    "out_minimal": "Not needed for the fault, which shows with them at their minimal values: {names}.",
    "out_passed": "Passed at production's value in the stable baseline: {names}.",
    "out_nothing": "Nothing was ruled out.",
    "not_deterministic": "Serving is not deterministic: batches form by arrival, and kernels may add up in another "
    "order. "
    "The same request may take another path the next time.",
    "tried_fail": "The failing side was tried {of} times: its true failure rate lies between {low} and {high} %.",
    "tried_pass": "The passing side was tried {of} times: a fault that shows in up to {percent} % of trials may "
    "have been "
    "missed there; {needed} passes in a row would exclude one of 5 %.",
    "passed_some": "The passing side passed {count} of {of} times only: it is not free of the fault.",
    "baselines_once": "Baselines on the way passed {least} to {most} times each; what a single pass leaves possible "
    "stands in "
    "their table.",
    "between": "Between {passing} and {failing} of {name} nothing was tried.",
    "not_followed": "The errors that were set aside may be faults of their own: {names}.",
    "still_possible": "Still possible as causes: {names}.",
    "never_tried": "Never tried at production's value: {names}.",
    "no_facts": "Facts that could not be had here: {names}.",
    "not_alone": "Only production as a whole shows the fault; taking settings away stopped short.",
    "judged_by_status": "reproduce.sh judges by the HTTP status and by whether the server lives. This fault shows "
    "in the text "
    "of the answer, so the script prints it and ends with 10; `repro run` judges it.",
    "no_rerun": "This bundle has not been run again from its own files (`rerun` is null in manifest.json).",
    "log_cut": "{name} is the end of a longer log: {lines} lines before it were left out.",
    # Files.
    "file_commands": "{files}: the commands of both ends and of each side, one shell line each.",
    "file_requests": "{files}: the bodies as they were sent; curl.sh sends the failing ones to any server.",
    "file_scenario": "scenario.toml: the search's own scenario; session.jsonl: its journal, the only truth of it; "
    "fingerprint.json: the environment.",
    "file_logs": "logs/: the root line of each failure with {before} lines before and {after} after, and the "
    "compressed logs "
    "of the pairs, each at most its last {limit} MiB.",
    "file_manifest": "manifest.json: versions, outcome, every file with size and sha256.",
    # Again.
    "again_failing": "`sh reproduce.sh` starts the failing side, sends the request and ends with 1 when it fails "
    "again.",
    "again_only": "`sh reproduce.sh` starts this configuration and sends the request: 1 when it fails, 0 when it "
    "passes.",
    "again_passing": "`sh reproduce.sh --passing{name}` does the same with the passing side and ends with 0.",
    "again_needs": "It needs {names}, and says what is missing (125). `PORT=` chooses the port.",
    "again_curl": "`sh curl.sh http://HOST:PORT` sends the failing request to a server that runs already.",
    "again_search": "`repro bisect scenario.toml` searches again from the start.",
    "again_history": "The git history of the search comes from its journal: put session.jsonl as "
    "`.repro/sessions/{session}/journal.jsonl` and scenario.toml beside it, then `repro bisect --resume --session "
    "{session}`. "
    "It starts no server.",
    "again_sums": "`sha256sum -c SHA256SUMS` checks the files.",
    # Scripts.
    "script_head": "Repeats one failure of session {session} by hand. Needs a POSIX shell, curl and the server's "
    "program.",
    "script_use": "sh reproduce.sh [--failing [NAME] | --passing [NAME]]; --help tells more.",
    "curl_head": "Sends the failing request to a running server: sh curl.sh [http://HOST:PORT]",
    "needs_names": "needs in the environment: {names}",
    "side_title": "trial {trial}, which {outcome}",
    "side_failed": "failed in the session",
    "side_passed": "passed in the session",
    "side_unresolved": "could not be judged in the session",
    "no_such_side": "name one of the pairs: {names}",
    "no_passing_side": "this session has one side only; leave the options away",
}


def say(key: str, **facts: object) -> str:
    """One sentence with its facts filled in."""
    return KEYS[key].format(**facts)
