"""`python -m harness`, and the `harness` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:  # before anything is imported that this does not need
        from harness import __version__

        print(f"harness {__version__}")
        return
    from harness.cli import cli

    cli()


if __name__ == "__main__":
    main()
