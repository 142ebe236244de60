"""Pages of which a part is made by a command: what stands between `<!-- name -->` and `<!-- /name -->`."""

from __future__ import annotations

import re
from collections.abc import Mapping


def filled(page: str, texts: Mapping[str, str]) -> str:
    """The page with these texts between their marks, each on lines of its own; all else stays as it was written."""
    for name, text in texts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        count = min(page.count(begin), page.count(end))
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(f"the page has {count} places for <!-- {name} --> and {end}, not 1")
        new = begin + text.removesuffix("\n") + "\n" + end
        page = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, new=new: new, page, flags=re.DOTALL)
    return page
