"""Everything a person can act on is one error class here, with its exit code and a hint that says what to do.

Anything that is not a ReproError is a defect of repro and shows a traceback.
"""

from __future__ import annotations

EXIT_GOOD = 0
EXIT_FAILURE_SEEN = 1
EXIT_USAGE = 2
EXIT_REBUILD = 4
EXIT_INCONCLUSIVE = 10
EXIT_END_NOT_AS_CLAIMED = 11
EXIT_COULD_NOT_TEST = 125
EXIT_INTERRUPTED = 130


class ReproError(Exception):
    """What happened and what it means (`message`), what to do about it (`hint`), and the exit code it ends with."""

    exit_code = EXIT_COULD_NOT_TEST

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(ReproError):
    """The command line of repro itself is wrong."""

    exit_code = EXIT_USAGE


class InvalidFile(ReproError):
    """A file the user wrote cannot be used; `message` names file, line or key."""

    exit_code = EXIT_USAGE


class NotVllm(ReproError):
    """The given command does not start a vLLM server."""

    exit_code = EXIT_USAGE


class UnresolvedWrapper(ReproError):
    """The command starts a script whose vLLM arguments cannot be seen from here."""

    exit_code = EXIT_USAGE


class MissingProgram(ReproError):
    """The program to launch is not on this machine."""

    exit_code = EXIT_USAGE


class WorkspaceUnusable(ReproError):
    """The workspace cannot be written."""

    exit_code = EXIT_USAGE


class WorkspaceBusy(ReproError):
    """Another search is using this workspace."""


class PortInUse(ReproError):
    """The asked port belongs to a server that repro did not start."""


class JournalNotWritten(ReproError):
    """The journal could not be written (full disk, for instance); everything before is kept."""


class SessionDiverged(ReproError):
    """The journal asks for another trial than the search does; it was written by other code or another scenario."""


class SceneMoved(ReproError):
    """A pinned fact (driver, image id, libraries, model files) changed during a session."""


class ServerStays(ReproError):
    """A server that repro started does not end, not even when it is killed."""


class Interrupted(ReproError):
    """The user pressed Ctrl-C; the session can be resumed."""

    exit_code = EXIT_INTERRUPTED


class DockerUnavailable(ReproError):
    """The Docker daemon does not answer."""


class SecretFound(ReproError):
    """A file to be handed over holds a secret; `message` names the file and the rule. Nothing was written."""
