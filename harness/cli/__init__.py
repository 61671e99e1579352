"""The command line: options → one call → print. Each command's module is imported when it runs."""

from __future__ import annotations

import importlib
import sys
from keyword import iskeyword
from typing import Any

import click

from harness import __version__
from harness.errors import HarnessError, Interrupted
from harness.terminal import printable, silence

# command → module in this package
COMMANDS = {
    "record": "record",
    "replay": "replay",
    "score": "score",
    "ls": "look",
    "show": "look",
    "diff": "compare",
    "verify": "keep",
    "seal-truths": "score",
    "export": "export",
    "import": "imports",
    "bundle": "keep",
    "unbundle": "keep",
    "rm": "keep",
    "gc": "keep",
    "clean": "keep",
}


class _Commands(click.Group):
    """Imports a command's module only when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"harness.cli.{COMMANDS[cmd_name]}")
        name = cmd_name.replace("-", "_") + "_" * iskeyword(cmd_name)
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from harness.config import nearest

            raise click.UsageError(error.message + nearest(args[0], COMMANDS), ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (HarnessError, Interrupted, KeyboardInterrupt) as error:
            _show_traceback(ctx)
            if not isinstance(error, HarnessError):
                click.echo("interrupted; what was finished is kept", err=True)
                sys.exit(130)
            click.echo(f"error: {printable(str(error), keep=chr(10))}", err=True)
            sys.exit(error.exit_code)
        except RecursionError:
            _show_traceback(ctx)
            # only a file that was made for it nests as deep as the interpreter's stack
            click.echo("error: a stored value is nested too deeply to be read", err=True)
            sys.exit(1)
        except BrokenPipeError:  # the reader of our output went away
            silence(sys.stdout.fileno())
            sys.exit(1)


def _show_traceback(ctx: click.Context) -> None:
    if ctx.params.get("debug"):
        import traceback

        click.echo(printable(traceback.format_exc(), keep="\n"), err=True)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="harness", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def cli(debug: bool) -> None:
    """Run GAIA once, record everything, replay it for ever.

    Exit status: 0 done; 1 a finding; 2 usage or data that cannot be used; 3 something is missing
    from the environment; 4 samples ended in error; 130 interrupted.
    """
