"""Tests of the reader of SARIF files, and of the workspace that keeps their findings."""

import copy
import json
import os
import random
import re
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

from sarif import SarifError, parse  # noqa: E402
from workspace import Workspace, open_inside  # noqa: E402

ROOT = Path("/work/app")


def sample(name):
    return (HERE / "testdata" / f"{name}.sarif").read_bytes()


def read(name):
    return parse(sample(name), ROOT).findings


def log(*results, **run):
    """Make a log with one run."""
    run = {"tool": {"driver": {"name": "t", "rules": [{"id": "r"}]}}, "results": list(results),
        **run}
    return json.dumps({"version": "2.1.0", "runs": [run]}).encode()


def at(uri, line=1, **more):
    return {"ruleId": "r", "message": {"text": "m"}, **more,
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri},
                "region": {"startLine": line}}}]}


class Tools(unittest.TestCase):
    """The shapes in which CodeQL, semgrep and gosec write."""

    def test_shapes(self):
        for name, want in {
            "codeql": [("high", "server/db.go", 3, ""), ("medium", "server/log in.go", 7, "")],
            "semgrep": [("high", "app/run.py", 4, ""), ("high", "app/run.py", 9, ""),
                        ("medium", "app/hash.py", 2, "inSource")],
            "gosec": [("high", "server/db.go", 3, ""),
                ("low", "server/log in.go", 5, "closing a reader")],
        }.items():
            got = [(f.severity, f.path, f.line, f.suppressed) for f in read(name)]
            self.assertEqual(got, want, name)
            self.assertEqual(len({f.id for f in read(name)}), len(want),
                f"{name}: the ids are not different")

    def test_rules(self):
        f = read("codeql")[0]
        self.assertEqual((f.about.name, f.about.help, f.about.tags, f.score), (
            "Database query built from user-controlled sources", "Use a prepared statement.",
            ("security", "external/cwe/cwe-089"), 8.8))

    def test_ids_outlive_moves(self):
        for name in ("codeql", "semgrep", "gosec"):
            moved = re.sub(rb'"startLine": ', b'"startLine": 10', sample(name))
            self.assertNotEqual(moved, sample(name))
            self.assertEqual([f.id for f in parse(moved, ROOT).findings],
                [f.id for f in read(name)], name)


class Meaning(unittest.TestCase):
    """The meaning of the fields of a result."""

    def one(self, result, **run):
        findings = parse(log(result, **run), ROOT).findings
        self.assertEqual(len(findings), 1)
        return findings[0]

    def test_paths(self):
        bases = {"SRC": {"uri": "src/", "uriBaseId": "ROOT"}, "ROOT": {"uri": "file:///work/app/"},
                 "CI": {"uri": "file:///home/runner/"}, "LOOP": {"uri": "x/", "uriBaseId": "LOOP"}}
        for uri, base, want in [
            ("a.c", None, "a.c"), ("./b/../a.c", None, "a.c"), ("../a.c", None, ""), ("/etc/passwd",
                None, ""),
            ("file:///work/app/a%20b.c", None, "a b.c"), ("file:///work/apple/a.c", None, ""),
            ("a.c", "SRC", "src/a.c"), ("a.c", "CI", "a.c"), ("a.c", "NONE", "a.c"),
            ("a.c", "LOOP", "x/x/x/x/x/x/x/x/a.c"), ("..%2F..%2Fetc", "SRC", ""),
            ("https://example.org/a.c", None, ""), ("a\\b.c", None, "a/b.c"), ("file://[", None,
                ""),
            ("a%00.c", None, ""), ("a%0a.c", None, ""), ("a%E2%80%AE.c", None, ""),
        ]:
            result = at(uri)
            if base:
                result["locations"][0]["physicalLocation"]["artifactLocation"]["uriBaseId"] = base
            self.assertEqual(self.one(result, originalUriBaseIds=bases).path, want, (uri, base))

    def test_severity(self):
        for more, want in [
            ({}, "medium"), ({"level": "error"}, "high"), ({"level": "note"},
                "low"), ({"level": "none"}, "info"),
            ({"level": 7}, "medium"), ({"kind": "review"}, "info"),
            ({"level": "note", "properties": {"security-severity": "9.8"}}, "critical"),
            ({"properties": {"security-severity": "lots"}}, "medium"),
            ({"properties": {"security-severity": "NaN"}}, "medium"),
            ({"properties": {"security-severity": 3}}, "low"),
        ]:
            self.assertEqual(self.one(at("a.c", **more)).severity, want, more)

    def test_state(self):
        self.assertTrue(self.one(at("a.c", baselineState="unchanged")).in_baseline)
        self.assertFalse(self.one(at("a.c", baselineState="new")).in_baseline)
        gone = parse(log(at("a.c", baselineState="absent")), ROOT)
        self.assertEqual((len(gone.findings), len(gone.gone)), (0, 1))
        self.assertEqual(parse(log(at("a.c", kind="pass")), ROOT).findings, [])
        for status, want in [("accepted", "external"), ("underReview", ""), ("rejected", "")]:
            got = self.one(at("a.c", suppressions=[{"kind": "external",
                "status": status}])).suppressed
            self.assertEqual(got, want, status)
        self.assertFalse(parse(log(invocations=[{"executionSuccessful": False}]), ROOT).is_complete)

    def test_messages(self):
        rules = {"driver": {"name": "t",
            "rules": [{"id": "r", "messageStrings": {"a": {"text": "use {1}, not {0}"}}}]}}
        message = {"id": "a", "arguments": ["x", "y"]}
        self.assertEqual(self.one(at("a.c", message=message), tool=rules).message, "use y, not x")
        hostile = self.one(at("a.c", message={"text": "\x1b[31mred\u202e\n- fake"})).message
        self.assertEqual(hostile, "[31mred - fake")


class Broken(unittest.TestCase):
    """Files that are cut, mangled or made to hurt: an error or a report, never anything else."""

    def test_cut(self):
        for name in ("codeql", "semgrep", "gosec"):
            data = sample(name).strip()
            for n in range(0, len(data), 7):
                with self.assertRaises(SarifError, msg=f"{name} cut at {n}"):
                    parse(data[:n], ROOT)

    def test_other_texts(self):
        for data in (b"", b"null", b"[]", b"{}", b'{"runs": 1}', b'{"version":"2.0.0","runs":[]}',
            b"\xff\xfe{",
                     b"[" * 100_000, b'{"version":"2.1.0","runs":' + b'[{"a":' * 50_000, b"1" * 10_000):
            with self.assertRaises(SarifError, msg=data[:20]):
                parse(data, ROOT)
        self.assertEqual(parse(b"\xef\xbb\xbf" + log(), ROOT).findings, [])

    def test_values_of_other_types(self):
        """Each value of each sample in turn becomes one of another type."""
        for name in ("codeql", "semgrep", "gosec"):
            original = json.loads(sample(name))
            for path in list(paths(original)):
                for value in (None, 7, -1, 1e308, "x", "\ud800", [], [None], {}, {"text": 1}, True):
                    changed = copy.deepcopy(original)
                    parent = changed
                    for key in path[:-1]:
                        parent = parent[key]
                    parent[path[-1]] = value
                    try:
                        report = parse(json.dumps(changed).encode(), ROOT)
                        json.dumps([f.to_dict() for f in report.findings])
                    except SarifError:
                        self.assertLess(len(path), 3, path)  # only the frame of the file can be beyond use

    def test_mangled(self):
        rng = random.Random(1)
        data = sample("codeql")
        for _ in range(500):
            mangled = bytearray(data)
            for _ in range(rng.randint(1, 8)):
                mangled[rng.randrange(len(mangled))] = rng.choice(b'{}[]",:0a\\\x00\xff')
            try:
                parse(bytes(mangled), ROOT)
            except SarifError:
                pass

    def test_bounds(self):
        report = parse(log(*[at("a.c", n) for n in range(1, 10_050)]), ROOT)
        self.assertEqual((len(report.findings), report.is_complete), (10_000, False))
        self.assertEqual(len(parse(log(at("a.c", message={"text": "x" * 10**6})),
            ROOT).findings[0].message), 2000)


def paths(value, before=()):
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value,
        list) else ()
    for key, child in children:
        yield (*before, key)
        yield from paths(child, (*before, key))


class Directory(unittest.TestCase):
    """A workspace on disk."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        base = Path(self.temporary.name).resolve()
        self.root, self.persist = base / "root", base / "persist"
        (self.root / "out").mkdir(parents=True)
        (base / "secret.txt").write_text("secret")
        self.base = base

    def open(self, max_bytes=10**6):
        return Workspace(self.root, str(self.persist), ["out/**/*.sarif", "*.sarif"], max_bytes)

    def write(self, data, name="out/a.sarif"):
        part = self.root / "part"
        part.write_bytes(data)
        os.replace(part, self.root / name)  # another inode: another stamp

    def look(self, w):
        change = w.look()
        for k in change.new.values():
            k.was_announced = True
        w.save()
        return ([k.finding.path for k in change.new.values()],
            [k.finding.path for k in change.fixed],
                change.complaints)

    def test_once(self):
        w = self.open()
        self.assertEqual(self.look(w), ([], [], []))
        self.write(log(at("a.c"), at("b.c")))
        self.assertEqual(self.look(w), (["a.c", "b.c"], [], []))
        self.assertEqual(self.look(w), ([], [], []))
        self.write(log(at("a.c", 9), at("b.c"), at("c.c")))
        self.assertEqual(self.look(w), (["c.c"], [], []))
        w = self.open()  # the provider starts again
        self.assertEqual(self.look(w), ([], [], []))
        self.write(log(at("a.c")), "b.sarif")  # another file has one of them too
        self.write(log(at("c.c")))
        self.assertEqual(self.look(w), ([], ["b.c"], []))
        self.write(log(), "b.sarif")
        self.assertEqual(self.look(w), ([], ["a.c"], []))
        self.write(log(at("b.c"), at("c.c")))
        self.assertEqual(self.look(w), (["b.c"], [], []))

    def test_failed_runs_fix_nothing(self):
        w = self.open()
        self.write(log(at("a.c")))
        self.look(w)
        for data in (log(invocations=[{"executionSuccessful": False}]), log()[:50]):
            self.write(data)
            self.assertEqual(self.look(w), ([], [], []))
        self.assertIn("can't read out/a.sarif: it is no JSON", self.look(w)[2][0])
        self.assertEqual(self.look(w), ([], [], []))
        os.unlink(self.root / "out/a.sarif")
        self.assertEqual(self.look(w), ([], [], []))
        self.write(log(at("a.c", baselineState="absent"),
            invocations=[{"executionSuccessful": False}]))
        self.assertEqual(self.look(w), ([], ["a.c"], []))

    def test_baseline_and_suppressions_are_silent(self):
        w = self.open()
        self.write(log(at("a.c", baselineState="unchanged"),
            at("b.c", suppressions=[{"kind": "inSource"}])))
        self.assertEqual(self.look(w), ([], [], []))
        self.assertEqual(sorted(k.state for k in w.known.values()), ["open", "suppressed"])

    def test_verdicts_stay(self):
        w = self.open()
        self.write(log(at("a.c")))
        self.look(w)
        k = next(iter(w.known.values()))
        k.verdict, k.reason = "accepted", "it is a test"
        w.save()
        self.write(log())
        self.look(w)
        self.write(log(at("a.c")))
        w = self.open()
        self.assertEqual(self.look(w), ([], [], []))
        self.assertEqual([(k.state, k.reason) for k in w.known.values()],
            [("accepted", "it is a test")])

    def test_state_file(self):
        w = self.open()
        self.write(log(at("a.c")))
        self.look(w)
        (file,) = self.persist.iterdir()
        self.assertEqual((file.stat().st_mode & 0o777, self.persist.stat().st_mode & 0o777),
            (0o600, 0o700))
        for text in ("{", "[]", '{"findings": [{}]}', '{"findings": [{"finding": 1}]}'):
            file.write_text(text)
            w = self.open()
            self.assertIn("begins anew", w.trouble)
            self.assertEqual(self.look(w)[0], ["a.c"])

    def test_big_files(self):
        w = self.open(max_bytes=1000)
        self.write(log(at("a.c")) + b" " * 1000)
        self.look(w)
        self.assertIn("1000 are read at most", self.look(w)[2][0])

    def test_links_lead_nowhere(self):
        (self.root / "link.txt").symlink_to(self.base / "secret.txt")
        (self.root / "up").symlink_to(self.base)
        (self.root / "inside.txt").write_text("x\n")
        (self.root / "good.txt").symlink_to("inside.txt")
        os.mkfifo(self.root / "pipe")
        for path in ("link.txt", "up/secret.txt", "../secret.txt", str(self.base / "secret.txt"),
            "out", ".", "pipe"):
            with self.assertRaises(OSError, msg=path):
                open_inside(self.root, path).close()
        with open_inside(self.root, "good.txt") as f:
            self.assertEqual(f.read(), b"x\n")
        os.symlink(self.base / "evil.sarif", self.root / "out/evil.sarif")
        (self.base / "evil.sarif").write_bytes(log(at("a.c")))
        w = self.open()
        self.look(w)
        self.assertIn("leads out of the workspace", self.look(w)[2][0])
        self.assertEqual(w.known, {})

    def test_code(self):
        w = self.open()
        (self.root / "a.c").write_text("one\ntwo\n\x1b[31mthree\nfour\n")
        self.write(log(at("a.c", 3), at("b.c"), at("../x.c"), at("a.c", 99, ruleId="other")))
        self.look(w)
        code = {k.finding.path + str(k.finding.line): k.finding for k in w.known.values()}
        self.assertEqual(w.code(code["a.c3"], 1),
            "      2 two\n>     3 \\u001b[31mthree\n      4 four")
        with self.assertRaisesRegex(LookupError, "only 4 lines"):
            w.code(code["a.c99"], 1)
        with self.assertRaises(FileNotFoundError):
            w.code(code["b.c1"], 1)
        with self.assertRaisesRegex(LookupError, "no place"):
            w.code(code["1"], 1)


if __name__ == "__main__":
    unittest.main()
