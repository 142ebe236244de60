"""Lets griffe, which reads the sources for the site's API pages, take what this project writes in comments.

A field's meaning stands behind it in its line, `temperature: float  # 0: take the likeliest token`: its docstring.
"""

from __future__ import annotations

import io
import tokenize
from pathlib import Path
from typing import Any

import griffe


class Comments(griffe.Extension):
    def __init__(self) -> None:
        self._of: dict[Path, dict[int, str]] = {}

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is None and isinstance(attr.filepath, Path) and attr.endlineno:
            comment = self._comments(attr.filepath).get(attr.endlineno, "")
            if comment:
                attr.docstring = griffe.Docstring(comment, lineno=attr.lineno, parent=attr)

    def _comments(self, path: Path) -> dict[int, str]:
        """By line; those for tools (`# type: ignore`, `# noqa`) are left out."""
        if path not in self._of:
            tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
            said = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
            tools = ("type:", "noqa", "pyright:", "fmt:")
            self._of[path] = {line: words for line, words in said.items() if not words.startswith(tools)}
        return self._of[path]
