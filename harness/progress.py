"""Progress on stderr: a live bar in a terminal, plain lines otherwise."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from harness.report import SampleResult
from harness.terminal import printable, tell


def progress_for(quiet: bool = False) -> Plain:
    """The display that suits stderr: a bar only in a terminal that may have colour, with rich."""
    if quiet:
        return Quiet()
    watched = sys.stderr is not None and sys.stderr.isatty()
    if watched and not os.environ.get("CI") and not os.environ.get("NO_COLOR"):
        try:
            return Bar()
        except ImportError:  # rich comes with the extra `record`
            pass
    return Plain()


class Plain:
    """One line per finished sample and per note."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = self._done = self._right = self._tokens = 0
        self.in_flight = False

    def running(self, yes: bool) -> None:
        """Whether samples are in flight, so that an interruption has to wait for replies."""
        self.in_flight = yes

    def begin(self, total: int, done: int, right: int = 0) -> None:
        """`total` samples in the run, `done` of them finished before, so many of these right."""
        with self._lock:
            self._total, self._done, self._right = total, done, right

    def note(self, line: str) -> None:
        """Say one line."""
        with self._lock:
            self._print(printable(line, keep="\n"))

    def sample(self, result: SampleResult) -> None:
        """One more sample is finished."""
        with self._lock:
            self._done += 1
            self._right += result.verdict == "right"
            self._finished(result)

    def tokens(self, count: int) -> None:
        """Tokens of one more reply."""
        with self._lock:
            self._tokens += count

    def end(self) -> None:
        """No more will come."""

    def _finished(self, result: SampleResult) -> None:
        self._print(
            f"[{self._done}/{self._total}] {printable(result.task_id)} epoch {result.epoch}: "
            f"{result.verdict}, {result.steps} steps; {self._right} right so far, "
            f"{self._tokens} tokens"
        )

    def _print(self, line: str) -> None:
        tell(line)


class Quiet(Plain):
    """Says nothing."""

    def _print(self, line: str) -> None:
        pass


class Bar(Plain):
    """A live bar: samples done, right so far, tokens."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("samples"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[right]} right · {task.fields[spent]} tokens"),
            Elapsed(),
            console=self._console,
        )
        self._task: Any = None

    def begin(self, total: int, done: int, right: int = 0) -> None:
        """Show the bar."""
        super().begin(total, done, right)
        self._task = self._bar.add_task("", total=total, completed=done, right=right, spent=0)
        self._bar.start()

    def tokens(self, count: int) -> None:
        """Tokens of one more reply."""
        super().tokens(count)
        self._refresh()

    def end(self) -> None:
        """Take the bar away."""
        self._bar.stop()

    def _finished(self, result: SampleResult) -> None:
        self._refresh()

    def _refresh(self) -> None:
        if self._task is not None:
            self._bar.update(
                self._task, completed=self._done, right=self._right, spent=self._tokens
            )

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)
