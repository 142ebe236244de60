"""What mkdocs does beside reading docs/ (`make site`): links out of docs/ lead to the repository, names get pages.

The pages of docs/ are written for GitHub. There a link to `../recipes/demo.toml` works, on the site it would not: it
becomes the address of that file. Pages of public names are made of their docstrings, so they have no file in docs/.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs does not look for modules where it runs

from isentrope.cli.pages import address_of, with_links  # noqa: E402

# page below api/ -> its title, its first sentence, the public names on it
API: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "running": (
        "Train, evaluate, read runs",
        "With examples: [Python API](../python.md).",
        ("load_config", "train", "warm_up", "rft", "evaluate", "runs", "Run"),
    ),
    "methods": (
        "Methods",
        "An entropy method is a class with the hooks it needs: [your own method](../extend/method.md).",
        ("Method", "Metric", "RolloutPlan", "StepTokens", "Shaped", "TokenBatch", "TokenStats", "Term"),
    ),
    "losses-and-advantages": (
        "Losses and advantages",
        "[Your own loss](../extend/loss.md), [your own advantage estimator](../extend/advantage.md).",
        ("Loss", "Advantage", "Outcomes", "Estimate"),
    ),
    "engines": (
        "Engines",
        "An engine samples responses: [your own engine](../extend/engine.md).",
        ("Engine", "Capabilities", "Request", "Sampled"),
    ),
    "worlds": (
        "Worlds and episodes",
        "[Bring your own task](../tasks/your-own.md), [sampler and reward](../extend/sampler-and-reward.md).",
        ("World", "Task", "Instance", "View", "Step", "Expert", "Move", "TaskSampler", "Episode", "Turn"),
    ),
    "settings": (
        "Settings",
        "Every setting with its meaning: [configuration](../configuration.md).",
        ("setting", "RunConfig"),
    ),
    "errors": (
        "Errors",
        "Each says the value, what was expected, and what to do.",
        ("IsentropeError", "ConfigError", "RunError", "TaskError", "EngineError", "TrainError"),
    ),
}
# a package and a public function have this name: the function is meant
RUNS = "::: isentrope.api.runs\n    options: { heading: isentrope.runs, toc_label: runs }\n"


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, (title, first, names) in API.items():
        body = "\n".join(RUNS if one == "runs" else f"::: isentrope.{one}\n" for one in names)
        files.append(File.generated(config, f"api/{name}.md", content=f"# {title}\n\n{first}\n\n{body}"))
    return files


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    source = PurePosixPath(page.file.src_uri)
    if source.name == "tables.md":  # hundreds of rows: they would bury what is searched for
        page.meta["search"] = {"exclude": True}
    published = {file.src_uri for file in files if not file.inclusion.is_excluded()}
    name = str(source.parent if source.name == "README.md" else source.with_suffix(""))

    def link(picture: str, words: str, target: str) -> str:
        path, mark, anchor = target.partition("#")
        leads_to = normpath(source.parent / path)
        if not path or re.match(r"[a-z]+:", target) or leads_to in published:
            pass
        elif f"{leads_to}/README.md" in published:  # of a folder its page
            target = f"{path.rstrip('/')}/README.md{mark}{anchor}"
        else:
            target = address_of("" if name == "." else name, target)
        return f"{picture}[{words}]({target})"

    return with_links(markdown, link)
