#!/usr/bin/env python3
"""Write the packaged data set `mini` anew from `mini_source`: the same bytes on every run.

    python scripts/make_mini.py [--into FOLDER]

The folder's `2023` part is replaced as a whole; its README is not touched.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from mini_source.level1 import LEVEL_1
from mini_source.level2 import LEVEL_2
from mini_source.level3 import LEVEL_3

HOME = Path(__file__).resolve().parent.parent / "harness" / "data" / "mini"
SPLIT = "2023/validation"


def write(into: Path) -> int:
    """Write the data set below `into`; returns the number of questions."""
    split = into / SPLIT
    shutil.rmtree(into / "2023", ignore_errors=True)
    split.mkdir(parents=True)
    tasks = [*LEVEL_1, *LEVEL_2, *LEVEL_3]
    for task in tasks:
        if task.file_name:
            (split / task.file_name).write_bytes(task.attachment)
    lines = [json.dumps(task.row(SPLIT), ensure_ascii=False) + "\n" for task in tasks]
    (split / "metadata.jsonl").write_bytes("".join(lines).encode())
    return len(tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--into", type=Path, default=HOME, help="default: the packaged folder")
    folder: Path = parser.parse_args().into
    print(f"make_mini: {write(folder)} questions written below {folder}")


if __name__ == "__main__":
    main()
