"""The state of a git repository, read without a shell, in bounded time and output, and changed only by fetch."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import unicodedata
from dataclasses import dataclass

MAX_OUTPUT = 1 << 20  # bytes that are read of one command
TIMEOUT = 30.0  # seconds for one command
FETCH_TIMEOUT = 120.0

# A repository's own configuration names programs that git runs. These are off; README.md lists the
# rest.
SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c",
    "core.quotePath=false",
        "-c", "log.showSignature=false", "-c", "protocol.ext.allow=never", "-c", "safe.bareRepository=explicit")

_TAG = re.compile(r"<(?=/?system)", re.IGNORECASE)  # hosts mark their own text with tags such as <system_reminder>
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")


class GitError(Exception):
    """A git command that failed. Its text is one line."""


def clean(text: str, limit: int = 200) -> str:
    """Make one line of foreign text: no escapes, no characters that can't be seen, not too long."""
    text = " ".join(_ESCAPES.sub("", text).split())
    text = _TAG.sub("‹", "".join(c for c in text if c == " "
        or unicodedata.category(c)[0] not in "CZ"))
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(frozen=True)
class Commit:
    """A commit; author, subject and date are as the repository has them."""

    id: str
    author: str
    emails: tuple[str, str]  # of the author and of the committer
    date: str
    subject: str

    def line(self) -> str:
        """Return the commit in one line."""
        return f"{self.id[:12]} {self.date[:10]} {clean(self.author, 40)}: {clean(self.subject, 120)}"


@dataclass(frozen=True)
class State:
    """A working tree at one moment."""

    head: str = ""  # "" before the first commit
    branch: str = ""  # "" if a commit is checked out
    upstream: str = ""
    upstream_head: str = ""
    ahead: int = 0
    behind: int = 0
    changed: int = 0  # files that differ from HEAD, untracked ones among them
    conflicts: tuple[str, ...] = ()
    cut: bool = False  # there was more than was read

    def where(self) -> str:
        """Name the branch for people."""
        return clean(self.branch, 100) or f"commit {self.head[:12]}"

    def tail(self) -> str:
        """Say the numbers in a form that a filter of the stream can match."""
        return (f"[branch={clean(self.branch, 100) or '-'} ahead={self.ahead} behind={self.behind} "
                f"changed={self.changed}{'+' if self.cut else ''} conflicts={len(self.conflicts)}]")


class Repository:
    """The repository that a directory belongs to; worktrees and directories below the top count."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def top(self) -> str:
        """Return the directory of the working tree, "" outside of one."""
        top = _top(self.directory)
        if top and not _common(top):
            raise GitError(f"{top}/.git leads to another repository, which is not followed")
        return top

    async def git(self, *args: str, timeout: float = TIMEOUT) -> str:
        """Run git and return its output, at most MAX_OUTPUT bytes of it."""
        return (await self._git(args, timeout))[0]

    async def _git_without_filters(self, *args: str) -> tuple[str, bool]:
        """Run git on files of the working tree. A repository can name programs that would filter their content."""
        names, cut = await self._git(("config", "--list", "--name-only", "-z"), TIMEOUT)
        if cut:
            raise GitError("the configuration of the repository is too long")
        filters = {name.rpartition(".")[0] for name in names.split("\0") if name.startswith("filter.")}
        off = [(f"{f}.{key}", value) for f in filters for key,
            value in (("process", ""), ("required", "false"))]
        settings = {"GIT_CONFIG_COUNT": str(len(off))}
        for i, (key, value) in enumerate(off):
            settings.update({f"GIT_CONFIG_KEY_{i}": key, f"GIT_CONFIG_VALUE_{i}": value})
        return await self._git(args, TIMEOUT, settings)

    async def _git(self, args: tuple[str, ...], timeout: float,
        settings: dict[str, str] = {}) -> tuple[str, bool]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        env.update(settings, GIT_OPTIONAL_LOCKS="0", GIT_TERMINAL_PROMPT="0", GIT_NO_LAZY_FETCH="1",
            LC_ALL="C")
        top = self.top()
        if top:  # else the configuration could name another directory (core.worktree), or git look further up
            env.update(GIT_WORK_TREE=top, GIT_CEILING_DIRECTORIES=os.path.dirname(top))
        starting = asyncio.ensure_future(asyncio.create_subprocess_exec(
            "git", *SAFE, *args, cwd=self.directory, env=env, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE))
        try:
            process = await asyncio.shield(starting)
            assert process.stdout and process.stderr
            (out, cut), (complaint, _) = await asyncio.wait_for(
                asyncio.gather(_read(process.stdout, MAX_OUTPUT),
                    _read(process.stderr, 4096)), timeout)
            if not cut and await asyncio.wait_for(process.wait(), timeout) != 0:
                lines = complaint.decode("utf-8", "replace").strip().splitlines()
                raise GitError(f"git {args[0]}: {clean(lines[0]) if lines else 'failed without a reason'}")
        except asyncio.TimeoutError:
            raise GitError(f"git {args[0]}: not done after {timeout:.0f} s") from None
        except OSError as err:
            raise GitError(f"git does not run in {self.directory}: {err.strerror}") from err
        finally:
            await _end(starting)
        return out.decode("utf-8", "replace"), cut

    async def state(self) -> State:
        """Read the state with two commands, or three if the branch has an upstream."""
        out, cut = await self._git_without_filters(
            "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=dirty")
        fields: dict[str, str] = {}
        conflicts, changed, entries = [], 0, iter(out.split("\0"))
        for entry in entries:
            if entry.startswith("# branch."):
                key, _, value = entry[len("# branch."):].partition(" ")
                fields[key] = value
                continue
            kind = entry[:1]
            if kind == "2":
                next(entries, "")  # the name before
            if kind == "u":
                conflicts.append(entry.split(" ", 10)[-1])
            changed += kind in tuple("12u?")
        ahead, behind = (abs(int(n)) for n in fields.get("ab", "+0 -0").split())
        head = "" if fields.get("oid") == "(initial)" else fields.get("oid", "")
        upstream_head = ""
        if "ab" in fields:
            upstream_head = (await self.git("rev-parse", "--verify", "--quiet",
                "@{upstream}")).strip()
        branch = fields.get("head", "")
        return State(head, "" if branch == "(detached)" else branch, fields.get("upstream", ""),
            upstream_head,
                     ahead, behind, changed, tuple(conflicts[:100]), cut)

    async def commits(self, since: str, until: str, limit: int) -> list[Commit]:
        """Return the newest commits that until has and since has not. Both are ids that git has printed."""
        out = await self.git("log", "-z", "--no-show-signature",
            "--format=%H%x1f%an%x1f%ae%x1f%ce%x1f%aI%x1f%s",
                             f"--max-count={limit}", f"{since}..{until}" if since else until, "--")
        rows = (row.split("\x1f") for row in out.split("\0") if row)
        return [Commit(r[0], r[1], (r[2], r[3]), r[4], r[5]) for r in rows if len(r) == 6]

    async def count(self, since: str, until: str) -> int:
        """Count the commits that until has and since has not."""
        return int(await self.git("rev-list", "--count", f"{since}..{until}" if since else until,
            "--"))

    async def files(self, since: str) -> list[str]:
        """Return how the files of the working tree differ from a commit: a letter and a path each."""
        out, _ = await self._git_without_filters("diff", "--no-ext-diff", "--no-textconv",
            "--no-renames",
                                                 "--name-status", "-z", "--ignore-submodules=dirty", since, "--")
        words = out.split("\0")
        return [f"{clean(letter)} {clean(path)}" for letter, path in zip(words[::2], words[1::2])]

    async def commit(self, name: str) -> str:
        """Return the id of the commit that a name of the model's stands for, or ""."""
        try:
            out = await self.git("rev-parse", "--verify", "--quiet", "--end-of-options",
                name + "^{commit}")
        except (GitError, ValueError):  # ValueError: a NUL
            return ""
        return out.strip()

    async def email(self) -> str:
        """Return the address of the user's own commits; "" if it is not set."""
        try:
            return (await self.git("config", "user.email")).strip()
        except GitError:
            return ""

    async def fetch(self) -> None:
        """Get the commits of the branch's remote."""
        await self.git("fetch", "--quiet", "--no-tags", "--no-recurse-submodules",
            "--no-auto-maintenance",
                       timeout=FETCH_TIMEOUT)


def _top(directory: str) -> str:
    """Return the innermost directory, at or above another one, that has anything called .git, or ""."""
    top = os.path.realpath(directory)
    while not os.path.lexists(os.path.join(top, ".git")):
        if top == os.path.dirname(top):
            return ""
        top = os.path.dirname(top)
    return top


def _common(top: str) -> str:
    """Return where the repository of a working tree has its objects, "" if that is not known to be the tree's own.

    A tree may come from an archive, with a .git that its author made. So a file .git must lead to a directory that
    names this tree: one that git made for a linked worktree or for a submodule.
    """
    name = os.path.join(top, ".git")
    if os.path.isdir(name):
        return "" if os.path.islink(name) or os.path.lexists(os.path.join(name,
            "commondir")) else name
    found = os.path.realpath(os.path.join(top, _text(name).removeprefix("gitdir:").strip()))
    named, common = (os.path.realpath(os.path.join(found, _text(os.path.join(found, file)).strip()))
                     for file in ("gitdir", "commondir"))
    if named == name and os.path.join(common, "worktrees") == os.path.dirname(found):
        return common
    around = _top(os.path.dirname(top))
    modules = os.path.realpath(os.path.join(around and _common(around) or os.devnull, "modules",
        ""))
    back = f"worktree = {os.path.relpath(top, found)}\n"
    is_module = found.startswith(modules + os.sep) and common == found and back in _text(os.path.join(found, "config"))
    return found if is_module else ""


def _text(path: str) -> str:
    """Return the text of a small file; "" if it is missing, a link or a pipe."""
    if os.path.islink(path) or not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read(1 << 16)


async def _end(starting: asyncio.Future[asyncio.subprocess.Process]) -> None:
    """End a process that still runs, with its children; also one whose start was cancelled."""
    await asyncio.wait([starting])
    if starting.exception() is not None:
        return
    process = starting.result()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended, and its return code is on its way here
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _read(stream: asyncio.StreamReader, limit: int) -> tuple[bytes, bool]:
    """Read until the end or the limit, and report whether there was more."""
    parts, size = [], 0
    while size <= limit:
        part = await stream.read(1 << 16)
        if not part:
            return b"".join(parts), False
        parts.append(part)
        size += len(part)
    return b"".join(parts)[:limit], True
