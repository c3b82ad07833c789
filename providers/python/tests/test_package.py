"""The package installs from its wheel into an empty directory."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parent.parent


class PackageTest(unittest.TestCase):
    """The wheel."""

    def test_wheel(self) -> None:
        """It builds without a network, and has the types and the version of the package."""
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            source = shutil.copytree(ROOT, work / "source",
                ignore=shutil.ignore_patterns("__pycache__"))
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
            self.run_in(work, *pip, "wheel", "--no-index", "--no-build-isolation", "--no-deps",
                "-w", "dist",
                        str(source))
            wheels = list((work / "dist").iterdir())
            self.assertEqual([w.name for w in wheels], ["tapgw-2.0.0-py3-none-any.whl"])
            self.run_in(work, *pip, "install", "--no-index", "--no-deps", "--target", "into",
                str(wheels[0]))
            installed = [p.name for p in (work / "into" / "tapgw").iterdir()]
            self.assertIn("py.typed", installed)
            found = self.run_in(work / "into", sys.executable, "-c",
                "import tapgw; print(tapgw.__file__)")
            self.assertEqual(Path(found.strip()),
                (work / "into" / "tapgw" / "__init__.py").resolve())

    def test_main(self) -> None:
        """main ends on SIGTERM although a callback ignores that it is cancelled, and says in one line why it can't go
        on."""
        program = """
import asyncio, os, signal, tapgw, tapgw._runner
tapgw._runner.STOP_GRACE = 0.1
async def hang(_):
    os.kill(os.getpid(), signal.SIGTERM)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
tapgw.Provider("x", url="ws://127.0.0.1:1", token="ptk-1", on_error=hang).main()
print("ended")
"""
        self.assertEqual(self.run_in(ROOT, sys.executable, "-B", "-c", program), "ended\n")
        done = subprocess.run([sys.executable, "-B", "-c",
            "import tapgw; tapgw.Provider('a b').main()"], cwd=ROOT,
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("stopping: provider a b: its name must be", done.stderr)

    def run_in(self, directory: Path, *command: str) -> str:
        """Run a command and return its output."""
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout


if __name__ == "__main__":
    unittest.main()
