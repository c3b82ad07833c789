"""Reads SARIF 2.1.0: the findings of a file, bounded, whatever the file holds."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import unicodedata
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional
from urllib.parse import unquote, urlsplit

SEVERITIES = ("critical", "high", "medium", "low", "info")

MAX_RESULTS = 10_000
MAX_MESSAGE = 2000
MAX_HELP = 2000
MAX_NAME = 300
MAX_BASES = 8

BY_LEVEL = {"error": "high", "warning": "medium", "note": "low", "none": "info"}
NO_FINDING = ("pass", "notApplicable", "informational")
# The text that semgrep writes in place of a fingerprint without a login: it is the same for all
# findings.
NO_FINGERPRINT = "requires login"


class SarifError(Exception):
    """A file that is no SARIF. Its text is for people."""


@dataclass(frozen=True)
class Rule:
    """A tool's description of one of its rules."""

    name: str = ""
    help: str = ""
    help_uri: str = ""
    tags: tuple[str, ...] = ()


@dataclass
class Finding:
    """A result. id is the same in every run of the tool; path is relative to the workspace, "" outside of it."""

    id: str
    tool: str
    rule: str
    severity: str
    level: str
    message: str
    path: str = ""
    line: int = 0
    end_line: int = 0
    score: Optional[float] = None
    in_baseline: bool = False
    suppressed: str = ""
    about: Rule = field(default_factory=Rule)

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON has it."""
        return asdict(self)

    @staticmethod
    def from_dict(d: dict[str, Any]) -> "Finding":
        """Return the object that to_dict wrote."""
        about = dict(d["about"], tags=tuple(d["about"]["tags"]))
        return Finding(**{**d, "about": Rule(**about)})

    @property
    def place(self) -> str:
        """Say where the finding is."""
        return f"{self.path or '(outside the workspace)'}{f':{self.line}' if self.line else ''}"


@dataclass
class Report:
    """The content of a file. is_complete is False if findings may be missing: a tool failed, or a bound was reached."""

    findings: list[Finding] = field(default_factory=list)
    gone: list[Finding] = field(default_factory=list)  # the tool says itself that they are fixed
    is_complete: bool = True


def parse(data: bytes, root: Path) -> Report:
    """Read a file. root is the workspace, against which relative addresses are resolved."""
    try:
        log = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as err:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise SarifError(f"it is no JSON: {clean(str(err), 200)}") from None
    if not isinstance(log, dict) or not isinstance(log.get("runs"), list):
        raise SarifError("it is no SARIF: it has no list of runs")
    if not str(log.get("version", "")).startswith("2.1"):
        raise SarifError(f"it is SARIF {clean(str(log.get('version')), 20)}, want 2.1.0")
    report = Report()
    seen: dict[str, int] = {}
    for run in log["runs"]:
        if isinstance(run, dict):
            _Run(run, root, report, seen).read()
    return report


def clean(text: Any, limit: int) -> str:
    """Return a text on one line without control and invisible characters, cut at the limit."""
    if not isinstance(text, str):
        return ""
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl",
        "Zp") else c for c in text[:limit * 2])
    text = " ".join(text.split())
    return text if len(text) <= limit else text[:limit - 1] + "…"


def _get(value: Any, *path: Any) -> Any:
    """Return the value at a path of keys and indices, None if it is not there."""
    for key in path:
        if isinstance(key, int) and isinstance(value, list):
            value = value[key] if 0 <= key < len(value) else None
        elif isinstance(key, str) and isinstance(value, dict):
            value = value.get(key)
        else:
            return None
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _int(value: Any, default: int) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 1 << 31
    return value if fits else default


class _Run:
    """One run of one tool."""

    def __init__(self, run: dict[str, Any], root: Path, report: Report,
        seen: dict[str, int]) -> None:
        self.run, self.root, self.report, self.seen = run, root, report, seen
        self.tool = clean(_get(run, "tool", "driver", "name"), MAX_NAME) or "unknown tool"

    def read(self) -> None:
        """Add the findings of the run to the report."""
        failed = [i for i in _list(self.run.get("invocations")) if _get(i,
            "executionSuccessful") is False]
        results = _list(self.run.get("results"))
        if failed or not isinstance(self.run.get("results"), list):
            self.report.is_complete = False
        for result in results:
            if len(self.report.findings) >= MAX_RESULTS:
                self.report.is_complete = False
                return
            if isinstance(result, dict):
                self._add(result)

    def _add(self, result: dict[str, Any]) -> None:
        kind = result.get("kind", "fail")
        if kind in NO_FINDING:
            return
        rule_id, rule = self._rule(result)
        level = result.get("level") or _get(rule, "defaultConfiguration", "level")
        if not isinstance(level, str) or level not in BY_LEVEL:
            level = "warning" if kind == "fail" else "none"
        score = _score(_get(result, "properties", "security-severity")) or _score(
            _get(rule, "properties", "security-severity"))
        place = _get(result, "locations", 0, "physicalLocation")
        path = self._path(_get(place, "artifactLocation"))
        line = max(0, _int(_get(place, "region", "startLine"), 0))
        finding = Finding(
            id="", tool=self.tool, rule=rule_id, severity=_severity(score, level), level=level,
            message=self._message(result.get("message"), rule) or rule_id, path=path, line=line,
            end_line=max(line, _int(_get(place, "region", "endLine"), line)), score=score,
            in_baseline=result.get("baselineState") in ("unchanged",
                "updated"), suppressed=_suppression(result),
            about=_about(rule))
        finding.id = self._identity(result, finding, place)
        to = self.report.gone if result.get("baselineState") == "absent" else self.report.findings
        to.append(finding)

    def _rule(self, result: dict[str, Any]) -> tuple[str, Any]:
        """Return the id of a result's rule, and the rule as its tool describes it."""
        reference = result.get("rule")
        index = _int(_get(reference, "index"), _int(result.get("ruleIndex"), -1))
        rule_id = _get(reference, "id") or result.get("ruleId")
        component = _get(self.run, "tool", "driver")
        extension = _int(_get(reference, "toolComponent", "index"), -1)
        if extension >= 0:
            component = _get(self.run, "tool", "extensions", extension)
        rule = _get(component, "rules", index)
        if rule is None or isinstance(rule_id, str) and _get(rule, "id") not in (rule_id, None):
            rule = next((r for r in _list(_get(component, "rules")) if _get(r, "id") == rule_id),
                None)
        return clean(rule_id or _get(rule, "id"), MAX_NAME) or "unknown rule", rule

    def _message(self, message: Any, rule: Any) -> str:
        text = _get(message, "text") or _get(message, "markdown")
        if not isinstance(text, str) and isinstance(_get(message, "id"), str):
            text = _get(rule, "messageStrings", message["id"], "text")
        arguments = _list(_get(message, "arguments"))
        if isinstance(text, str) and arguments:
            def fill(m: "re.Match[str]") -> str:
                value = _get(arguments, int(m[1]))
                return value if isinstance(value, str) else m[0]

            text = re.sub(r"\{(\d{1,3})\}", fill, text[:MAX_MESSAGE])
        return clean(text, MAX_MESSAGE)

    def _path(self, location: Any) -> str:
        """Return the path of an artifact relative to the workspace, "" if it lies outside."""
        if not isinstance(_get(location, "uri"), str):
            location = _get(self.run, "artifacts", _int(_get(location, "index"), -1), "location")
        uri = _get(location, "uri")
        if not isinstance(uri, str) or len(uri) > 4096:
            return ""
        bases = _get(self.run, "originalUriBaseIds")
        base, whole = _get(location, "uriBaseId"), uri
        for _ in range(MAX_BASES):
            entry = _get(bases, base) if isinstance(base, str) else None
            prefix = _get(entry, "uri")
            if isinstance(prefix, str) and not _scheme(whole):
                whole = prefix.rstrip("/") + "/" + whole
            base = _get(entry, "uriBaseId")
        # A base that is a directory of another machine says nothing here: then the rest is relative
        # to the workspace.
        return self._inside(whole) or self._inside(uri)

    def _inside(self, uri: str) -> str:
        try:
            parts = urlsplit(uri.replace("\\", "/"))
        except ValueError:
            return ""
        path = unquote(parts.path)
        if parts.scheme not in ("", "file") or "\0" in path:
            return ""
        if path.startswith("/"):
            root = self.root.as_posix().rstrip("/")
            path = posixpath.normpath("/" + path.lstrip("/"))
            if not path.startswith(root + "/"):
                return ""
            path = path[len(root) + 1:]
        path = posixpath.normpath(path)
        return "" if path == "." or path.split("/")[0] == ".." or clean(path,
            4096) != path else path

    def _identity(self, result: dict[str, Any], f: Finding, place: Any) -> str:
        """Return an id that does not depend on where in its file the finding is, if the tool allows that."""
        prints = _get(result, "fingerprints") or _get(result, "partialFingerprints")
        if not isinstance(prints, dict):
            prints = {}
        prints = {k: v for k, v in prints.items() if isinstance(v, str) and v != NO_FINGERPRINT}
        line_hash = next((prints[k] for k in sorted(prints) if k.split("/")[0] == "primaryLocationLineHash"), None)
        if line_hash:
            prints = {"primaryLocationLineHash": line_hash}
        if not prints:
            snippet = _get(place, "region", "snippet", "text")
            prints = {"text": " ".join(snippet.split()) if isinstance(snippet, str) else f.message}
        base = json.dumps([f.tool, f.rule, f.path, sorted(prints.items())])
        n = self.seen[base] = self.seen.get(base, 0) + 1  # two equal lines of a file are two findings
        return hashlib.sha256(f"{base} {n}".encode(errors="replace")).hexdigest()[:32]


def _scheme(uri: str) -> str:
    return (re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", uri) or [""])[0]


def _score(value: Any) -> Optional[float]:
    try:
        score = float(value) if isinstance(value, (str, int, float)) and not isinstance(value,
            bool) else -1.0
    except (ValueError, OverflowError):
        return None
    return score if 0 <= score <= 10 else None


def _severity(score: Optional[float], level: str) -> str:
    if not score:
        return BY_LEVEL[level]
    return "critical" if score >= 9 else "high" if score >= 7 else "medium" if score >= 4 else "low"


def _suppression(result: dict[str, Any]) -> str:
    """Return why a result is suppressed, "" if it is not: a suppression that is under review does not count."""
    all_of = [s for s in _list(result.get("suppressions")) if isinstance(s, dict)]
    if not all_of or any(s.get("status", "accepted") != "accepted" for s in all_of):
        return ""
    return "; ".join(clean(s.get("justification"), 500) or clean(s.get("kind"), 50)
        or "suppressed" for s in all_of)


def _about(rule: Any) -> Rule:
    def text(*names: str) -> str:
        return next((t for t in (_get(rule, n, "text") or _get(rule, n, "markdown") for n in names)
                     if isinstance(t, str) and t), "")

    tags = [clean(t, 100) for t in _list(_get(rule, "properties", "tags"))[:20]]
    return Rule(name=clean(text("shortDescription") or _get(rule, "name"), MAX_NAME),
                help=clean(text("help", "fullDescription"), MAX_HELP),
                help_uri=clean(_get(rule, "helpUri"), MAX_NAME), tags=tuple(t for t in tags if t))
