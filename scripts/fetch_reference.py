"""Fetch the two published ports of the leaderboard's scorer that the tests compare ours with.

    python scripts/fetch_reference.py

The wheels are taken with ``pip download --no-deps``, pinned by SHA-256, and kept in a cache folder
outside the repository; they are neither installed nor committed. A wheel that is already there and
intact is left alone, so the second run needs no network. Exit status: 0, or 3 when a wheel could
not be had.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.reference_scorer import REFERENCES, Reference, cache_folder, is_intact


class FetchError(Exception):
    """A wheel could not be had, or is not the one that is pinned."""


def fetch(reference: Reference, folder: Path) -> bool:
    """Put the wheel into ``folder``; False if it was there already. Raises `FetchError`."""
    wheel = folder / reference.wheel
    if is_intact(wheel, reference):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", scratch, reference.requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FetchError(f"pip could not download {reference.requirement}:\n{done.stderr}")
        fresh = Path(scratch) / reference.wheel
        if not is_intact(fresh, reference):
            raise FetchError(
                f"{reference.requirement} is not the file that is pinned here: expected "
                f"{reference.wheel} with sha256 {reference.sha256}. A mirror may have changed it."
            )
        os.replace(fresh, wheel)
    return True


def main() -> int:
    folder = cache_folder()
    for reference in REFERENCES.values():
        try:
            fresh = fetch(reference, folder)
        except FetchError as error:
            print(error, file=sys.stderr)
            return 3
        print(f"{'fetched' if fresh else 'present'}  {folder / reference.wheel}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
