"""`python -m tests.hubs modelscope|huggingface ROOT [PORT]`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from tests.hubs.base import Hub
from tests.hubs.huggingface import HuggingFaceHub
from tests.hubs.modelscope import ModelScopeHub

KINDS: dict[str, type[Hub]] = {"modelscope": ModelScopeHub, "huggingface": HuggingFaceHub}


def main() -> None:
    kind, root, *port = sys.argv[1:]
    with KINDS[kind](Path(root), port=int(port[0]) if port else 0) as hub:
        print(hub.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
