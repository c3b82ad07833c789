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
            source = shutil.copytree(ROOT, work / "source", ignore=shutil.ignore_patterns("__pycache__"))
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
            self.run_in(work, *pip, "wheel", "--no-index", "--no-build-isolation", "--no-deps", "-w", "dist", str(source))
            wheels = list((work / "dist").iterdir())
            self.assertEqual([w.name for w in wheels], ["tapgw-2.0.0-py3-none-any.whl"])
            self.run_in(work, *pip, "install", "--no-index", "--no-deps", "--target", "into", str(wheels[0]))
            self.assertTrue((work / "into" / "tapgw" / "py.typed").exists())
            found = self.run_in(work / "into", sys.executable, "-c", "import tapgw; print(tapgw.__file__)")
            self.assertEqual(Path(found.strip()), (work / "into" / "tapgw" / "__init__.py").resolve())

    def run_in(self, directory: Path, *command: str) -> str:
        """Run a command and return what it writes."""
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout


if __name__ == "__main__":
    unittest.main()
