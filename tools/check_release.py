"""Whether a tag may be released: `python tools/check_release.py v0.4.0`.

The tag has to be the package's version; CHANGELOG.md has to have a dated section of it; CITATION.cff has to name it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problems_of(tag: str, root: Path = ROOT) -> list[str]:
    version = _found(r'^__version__ = "(.+)"$', root / "isentrope" / "__init__.py")
    cited = _found(r"^version: (.+)$", root / "CITATION.cff")
    dated = _found(rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)$", root / "CHANGELOG.md")
    checks = {
        f"the tag is {tag}, the package's version {version}: expected v{version}": tag == f"v{version}",
        f"CHANGELOG.md has no dated section: expected ## {version} (YEAR-MONTH-DAY)": bool(dated),
        f"CITATION.cff names version {cited}: expected {version}": cited == version,
    }
    return [problem for problem, fine in checks.items() if not fine]


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if problems := problems_of(sys.argv[1]):
        sys.exit("\n".join(problems))
