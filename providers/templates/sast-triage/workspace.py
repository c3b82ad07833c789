"""The session's directory: which SARIF files it has, their findings, and the triage of these."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

from sarif import Finding, Report, SarifError, clean, parse

MAX_ENTRIES = 50_000  # of the directory tree, that one look visits
MAX_FILES = 100
MAX_KNOWN = 20_000
MAX_CODE = 4 * 1024 * 1024
SKIPPED = {".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__"}
VERDICTS = ("false_positive", "accepted", "open")


@dataclass
class Known:
    """A finding and its present state."""

    finding: Finding
    files: list[str]  # the SARIF files that have it; empty if it is fixed
    seen: float
    was_announced: bool = False
    verdict: str = ""
    reason: str = ""
    by: str = ""

    @property
    def state(self) -> str:
        """Return open, fixed, suppressed, or the verdict of a triage."""
        return "fixed" if not self.files else self.verdict or ("suppressed" if self.finding.suppressed else "open")


@dataclass
class Change:
    """The result of a look."""

    new: dict[str, Known]
    fixed: list[Known]
    complaints: list[str]


class Workspace:
    """A directory. Its methods don't run at the same time: look is for a thread, the others for the event loop."""

    def __init__(self, root: Path, persist_dir: str, globs: list[str], max_bytes: int) -> None:
        self.root = root.resolve()
        self.known: dict[str, Known] = {}
        self.max_bytes = max_bytes
        self._matches = [_glob(g) for g in globs]
        self._stamps: dict[str, tuple[int, ...]] = {}  # of the files that were read
        self._failed: dict[str, tuple[int, ...]] = {}  # of the files that could not be read at the last look
        name = hashlib.sha256(str(self.root).encode(errors="surrogateescape")).hexdigest()[:16]
        self._file = Path(persist_dir or tempfile.mkdtemp(prefix="sast-triage-")) / f"{name}.json"
        self._load()

    def look(self) -> Change:
        """Read the SARIF files that are new or changed since the last look."""
        change = Change({}, [], [])
        for path in self._files():
            try:
                with open_inside(self.root, path) as f:
                    info = os.fstat(f.fileno())
                    stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
                    if self._stamps.get(path) == stamp:
                        continue
                    if info.st_size > self.max_bytes:
                        raise SarifError(f"it has {info.st_size} bytes, and {self.max_bytes} are read at most")
                    report = parse(f.read(self.max_bytes + 1), self.root)
            except FileNotFoundError:
                continue  # just deleted: its findings stay as they are
            except (SarifError, OSError) as err:
                stamp = self._stamp(path)
                if self._failed.get(path) == stamp:  # twice: the file is no longer being written
                    self._stamps[path] = stamp
                    change.complaints.append(f"can't read {clean(path, 300)}: {clean(str(err), 300)}")
                self._failed[path] = stamp
                continue
            self._stamps[path] = stamp
            self._merge(path, report, change)
        return change

    def find(self, prefix: str) -> Known:
        """Return the finding whose id begins so. The LookupError names the fault."""
        matching = [k for id_, k in self.known.items() if id_.startswith(prefix)] if len(prefix) >= 4 else []
        if len(matching) != 1:
            raise LookupError(f"{'several findings have' if matching else 'there is no finding with'} the id {prefix}")
        return matching[0]

    def save(self) -> None:
        """Write the state, whole or not at all."""
        old = sorted((k for k in self.known.values() if not k.files),
            key=lambda k: (bool(k.verdict), k.seen))
        for k in old[:max(0, len(self.known) - MAX_KNOWN)]:
            del self.known[k.finding.id]
        rows = [{**vars(k), "finding": k.finding.to_dict()} for k in self.known.values()]
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, part = tempfile.mkstemp(dir=self._file.parent, prefix=self._file.name)  # mode 0600
        try:
            with os.fdopen(fd, "w") as f:
                json.dump({"version": 1, "root": str(self.root), "findings": rows}, f)
                f.flush()
                os.fsync(f.fileno())
            os.replace(part, self._file)
        except BaseException:
            os.unlink(part)
            raise

    def code(self, f: Finding, around: int) -> str:
        """Return the lines of the finding and a few around them. A LookupError says why they can't be shown."""
        if not f.path or not f.line:
            raise LookupError("the finding names no place in the workspace")
        with open_inside(self.root, f.path) as file:
            data = file.read(MAX_CODE + 1)
        if len(data) > MAX_CODE:
            raise LookupError(f"{f.path} has more than {MAX_CODE} bytes")
        lines = data.decode(errors="replace").splitlines()
        first, last = max(1, f.line - around), min(len(lines),
            min(f.end_line, f.line + 50) + around)
        if first > len(lines):
            raise LookupError(f"{f.path} has only {len(lines)} lines: it changed since the tool ran")
        return "\n".join(f"{'>' if f.line <= n <= f.end_line else ' '} {n:5} {_visible(lines[n - 1])}"
                         for n in range(first, last + 1))

    def _load(self) -> None:
        try:
            state = json.loads(self._file.read_text())
            for row in state["findings"]:
                known = Known(**{**row, "finding": Finding.from_dict(row["finding"])})
                self.known[known.finding.id] = known
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as err:
            aside = self._file.with_suffix(f".unreadable-{int(time.time())}")
            os.replace(self._file, aside)
            self.known = {}
            self.trouble = f"the state could not be read ({err}); it is kept as {aside.name}, and begins anew"

    trouble = ""  # a text to be reported once

    def _merge(self, path: str, report: Report, change: Change) -> None:
        now, present = time.time(), set()
        for f in report.findings:
            present.add(f.id)
            k = self.known.get(f.id)
            was_there = k is not None and bool(k.files)
            if k is None:
                k = self.known[f.id] = Known(f, [], now)
            k.finding, k.seen = f, now
            if path not in k.files:
                k.files.append(path)
            if not was_there:
                k.was_announced = False
            if not k.was_announced and k.state == "open" and not f.in_baseline:
                change.new[f.id] = k
        gone = {f.id for f in report.gone} - present
        for k in self.known.values():
            if path in k.files and k.finding.id not in present and (report.is_complete
                or k.finding.id in gone):
                was_open = k.state == "open"
                k.files.remove(path)
                if not k.files and was_open and k.was_announced:
                    change.fixed.append(k)

    def _files(self) -> list[str]:
        found: list[str] = []
        for path in self._walk():
            if any(m(path) for m in self._matches):
                found.append(path)
                if len(found) == MAX_FILES:
                    break
        return sorted(found)

    def _walk(self) -> Iterator[str]:
        visited = 0
        for directory, subdirectories, names in os.walk(self.root):  # it follows no symbolic links to directories
            subdirectories[:] = sorted(d for d in subdirectories if d not in SKIPPED)
            for name in names[:MAX_ENTRIES - visited]:
                yield os.path.relpath(os.path.join(directory, name), self.root)
            visited += 1 + len(names)
            if visited >= MAX_ENTRIES:
                return

    def _stamp(self, path: str) -> tuple[int, ...]:
        try:
            info = os.stat(self.root / path)
        except OSError:
            return ()
        return info.st_mtime_ns, info.st_size, info.st_ino


def open_inside(root: Path, path: str) -> Any:
    """Open a regular file of a workspace. Symbolic links may lead anywhere in it, but not out of it.

    The path is resolved first. Then it is opened part by part without following links, so that a link that is put
    there meanwhile leads nowhere either.
    """
    real = (root / path).resolve()
    if root not in real.parents:
        raise PermissionError(f"{path} leads out of the workspace")
    parts = real.relative_to(root).parts
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for i, part in enumerate(parts):
            kind = os.O_NONBLOCK if i == len(parts) - 1 else os.O_DIRECTORY
            below = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=fd)
            os.close(fd)
            fd = below
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise PermissionError(f"{path} is no regular file")
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def _glob(pattern: str) -> Callable[[str], Optional["re.Match[str]"]]:
    """Compile a glob: * and ? match within a part of a path, ** matches across parts."""
    expression = ""
    for part in re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", pattern):
        expression += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part,
            re.escape(part))
    return re.compile(expression, re.DOTALL).fullmatch


def _visible(line: str) -> str:
    return "".join(c if c == "\t" or c.isprintable() else f"\\u{ord(c):04x}" for c in line[:400])
