"""`python -m harness`, and the `harness` command."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line."""
    _open_standard_streams()
    if sys.argv[1:] == ["--version"]:  # before anything is imported that this does not need
        from harness import __version__

        print(f"harness {__version__}")
        return
    from harness.cli import cli

    cli()


def _open_standard_streams() -> None:
    """Those that we were started without: the next file to be opened would be taken for one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


if __name__ == "__main__":
    main()
