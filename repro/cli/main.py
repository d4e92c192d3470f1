"""`repro`: the command group, its errors and its exit codes."""

from __future__ import annotations

import errno
import io
import sys
import traceback
from contextlib import suppress

import click

from repro import __version__
from repro.cli.lazy import LazyGroup
from repro.cli.signals import Interrupts
from repro.errors import EXIT_COULD_NOT_TEST, EXIT_INTERRUPTED, EXIT_USAGE, ReproError

# What `git bisect run` must see for wrong usage: it takes 128 and above as "stop", and 2 as "bad".
GIT_BISECT_USAGE = 128
# What a shell reports of a program that ended because nobody read its output any more (128 + SIGPIPE).
EXIT_NOBODY_READS = 141
_DISK_REFUSES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="repro %(version)s")
def cli() -> None:
    """Reproduce a failing vLLM deployment, one variable at a time.

    Everything is kept below .repro/ in this folder or the nearest one above that has it.
    """


def main() -> None:
    """The console script: runs the command line and exits with the code that the error or the result carries."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without Unicode shows a name's code, never a traceback
            stream.reconfigure(errors="backslashreplace")
    Interrupts().install()
    try:
        code = run(sys.argv[1:])
    except Exception:
        # Python would end with 1, which says that vLLM failed: a `git bisect run` would blame a commit for our defect.
        traceback.print_exc()
        click.echo("repro: this is a defect of repro itself, and says nothing about vLLM", err=True)
        code = EXIT_COULD_NOT_TEST
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Runs one command line; returns its exit code. Talk goes to stderr, results to stdout."""
    try:
        result = cli.main(arguments, prog_name="repro", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except ReproError as error:
        click.echo(f"repro: {error.message}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        return _usage_code(arguments) if error.exit_code == EXIT_USAGE else error.exit_code
    except click.ClickException as error:
        error.show()
        return _usage_code(arguments)
    except (KeyboardInterrupt, click.Abort):
        click.echo("repro: interrupted", err=True)
        return EXIT_INTERRUPTED
    except SystemExit:
        # Only click ends so, with 1, when whoever read our output has left (`repro … | head`): that is no failure seen.
        return EXIT_NOBODY_READS
    except OSError as error:
        if error.errno not in _DISK_REFUSES:
            raise
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"repro: {where}{error.strerror}", err=True)
        click.echo("  free space there, then again; a search goes on with `repro bisect --resume`", err=True)
        return EXIT_COULD_NOT_TEST


def _usage_code(arguments: list[str]) -> int:
    return GIT_BISECT_USAGE if "--git-bisect" in arguments else EXIT_USAGE
