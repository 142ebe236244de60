"""Which figures the claims' pages have. Cells are those of recipes/studies/household.toml, unless another is named."""

from __future__ import annotations

from tools.claims_figures import STUDY, SUCCESS, Figure, Part

_ENTROPY = "entropy/token"
_OVER_TURNS = "averaged over turns"
_SWITCH = ((50.0, "ActRe's stage 2"),)
_BRANCHES = {cell: cell for cell in ("turn", "sequence", "token", "episode")}
_WEIGHED = {"grpo": "turn", "grpo-sequence": "sequence", "grpo-token": "token", "grpo-episode": "episode"}
_CHANGED = {"grpo-free": "no KL", "grpo-punished": "penalty −1", "grpo-divided-unpunished": "divided, no penalty"}
_EPO = {
    "grpo": "GRPO",
    "grpo-epo": "EPO",
    "grpo-epo-base": "without smoothing",
    "grpo-epo-no-dw": "constant β",
    "grpo-epo-decay": "decaying bonus",
    "grpo-ea": "EA",
}


def _success(
    name: str, title: str, *parts: Part, banded: tuple[str, ...] = (), marks: tuple[tuple[float, str], ...] = ()
) -> Figure:
    told = f"Success on unseen games: {title}"
    return Figure(name, told, SUCCESS, parts, banded=banded, shares=True, marks=marks)


def _turns(name: str, told: str, key: str, shares: bool = False) -> Figure:
    """The long runs that are averaged over turns."""
    cells = ("grpo-turns-long", "grpo-seal-turns-long")
    parts = (Part({cells[0]: ""}, "GRPO"), Part({cells[1]: ""}, "SEAL"))
    title = f"{told}, long runs {_OVER_TURNS}, seed by seed"
    return Figure(f"seal-turns-{name}", title, key, parts, by_seed=cells, smooth=True, shares=shares)


def _by_seed(name: str, told: str, cells: dict[str, str], study: str = STUDY) -> Figure:
    """Whether entropy stays calm: a panel for each cell, seed by seed."""
    parts = tuple(Part({cell: ""}, label) for cell, label in cells.items())
    title = f"Token entropy{told}, seed by seed"
    return Figure(name, title, _ENTROPY, parts, by_seed=tuple(cells), smooth=True, study=study)


def _long(name: str, told: str, cells: dict[str, str]) -> Figure:
    return _by_seed(name, f", long runs {told}", cells)


ACTRE = (
    Figure(
        "actre-delta-h",
        "ΔH at the probed states, seed by seed",
        "probe/delta_h",
        (Part({"grpo": ""}, "GRPO"), Part({"grpo-long": ""}, "GRPO, long runs")),
        by_seed=("grpo", "grpo-long"),
    ),
    Figure(
        "actre-action-entropy",
        "Entropy of action tokens",
        "entropy/action",
        (Part({"grpo": "GRPO", "grpo-actre": "ActRe", "grpo-actre-no-hot": "ActRe without hot tokens"}),),
        smooth=True,
        marks=_SWITCH,
    ),
    _success(
        "actre-success",
        "ActRe and what it is compared with",
        Part({"grpo": "GRPO", "grpo-actre": "ActRe", "grpo-hot": "higher temperature", "grpo-entreg": "entropy bonus"}),
        banded=("grpo", "grpo-actre"),
        marks=_SWITCH,
    ),
    _success(
        "actre-parts",
        "ActRe's parts, and no thinking",
        Part(
            {
                "grpo": "GRPO",
                "grpo-actre": "ActRe",
                "grpo-actre-no-stage1": "without stage 1",
                "grpo-actre-no-stage2": "without stage 2",
                "grpo-actre-no-hot": "without hot tokens",
                "grpo-no-think": "no thinking",
            }
        ),
        banded=("grpo", "grpo-actre"),
        marks=_SWITCH,
    ),
    _success(
        "actre-forms",
        "after a warm-up that teaches acting first",
        Part(
            {
                "grpo-forms": "GRPO",
                "grpo-actre-forms": "ActRe",
                "grpo-actre-no-stage2-forms": "without stage 2",
                "grpo-actre-no-hot-forms": "without hot tokens",
                "grpo-no-think-forms": "no thinking",
            }
        ),
        banded=("grpo-forms", "grpo-actre-forms"),
        marks=_SWITCH,
    ),
)
EPO = (
    _success("epo-success", "EPO, its variants, and EA", Part(_EPO), banded=("grpo", "grpo-epo")),
    Figure(
        "epo-entropy",
        "Token entropy: EPO, its variants, and EA",
        _ENTROPY,
        (Part(_EPO),),
        banded=("grpo", "grpo-epo"),
        smooth=True,
    ),
    _success("epo-ppo", "EPO on PPO", Part({"ppo": "PPO", "ppo-epo": "PPO with EPO"})),
)
SEAL = (
    Figure(
        "seal-long",
        "Token entropy of the long runs, seed by seed",
        _ENTROPY,
        (Part({"grpo-long": ""}, "GRPO"), Part({"grpo-seal-long": ""}, "SEAL")),
        by_seed=("grpo-long", "grpo-seal-long"),
        smooth=True,
    ),
    _long("seal-gigpo", "of GiGPO", {"gigpo-long": "GiGPO", "gigpo-seal-long": "GiGPO with SEAL"}),
    _turns("entropy", "Token entropy", _ENTROPY),
    Figure(
        "seal-turns-where",
        f"Token entropy by part of the response, long runs {_OVER_TURNS}, seed by seed",
        _ENTROPY,
        tuple(
            Part({"grpo-turns-long": ""}, told, f"entropy/{part}")
            for told, part in (("thoughts", "think"), ("actions", "action"), ("the rest", "other"))
        ),
        by_seed=("grpo-turns-long",),
        smooth=True,
    ),
    _long(
        "seal-weighing",
        "with one of the two settings",
        {"grpo-turns-divided-long": "over turns, divided", "grpo-undivided-long": "over tokens, undivided"},
    ),
    _long("seal-turns-kl", _OVER_TURNS, {"grpo-turns-long": "GRPO", "grpo-turns-kl-long": "3.5 times the KL weight"}),
    _long("seal-turns-bonus", _OVER_TURNS, {"grpo-entreg-turns-long": "entropy bonus", "grpo-epo-turns-long": "EPO"}),
    _long("seal-turns-others", _OVER_TURNS, {"grpo-aem-turns-long": "AEM", "grpo-seal-03-turns-long": "SEAL, α = 0.3"}),
    Figure(
        "seal-branches",
        "Where an eruption goes on: runs from the same policy, by aggregation",
        "response/outcome/failed",
        (
            Part(_BRANCHES, "tokens of a response, failed episodes"),
            Part(_BRANCHES, "solved episodes", "response/outcome/solved"),
        ),
        smooth=True,
        study="branches",
    ),
    _by_seed("seal-noise", ", undivided, by aggregation", _WEIGHED, study="noise"),
    _by_seed("seal-noise-else", ", averaged over turns, with one more setting changed", _CHANGED, study="noise"),
    Figure(
        "seal-noise-length",
        "Tokens of a response, by aggregation",
        "response/outcome/failed",
        (Part(_WEIGHED, "failed episodes"), Part(_WEIGHED, "solved episodes", "response/outcome/solved")),
        smooth=True,
        study="noise",
    ),
    _turns("duplication", "Sentences that stand more than once in a response", "degeneracy/duplication", shares=True),
    _turns("valid", "Valid actions", "valid_ratio", shares=True),
    Figure("seal-early-valid", "Valid actions at the beginning", "valid_ratio", (Part({"grpo": "GRPO"}),), last=50,
           shares=True),
    Figure("seal-early-entropy", "Token entropy at the beginning", _ENTROPY, (Part({"grpo": "GRPO"}),), last=50),
    _success(
        "seal-success",
        "SEAL",
        Part(
            {
                "grpo": "bare",
                "grpo-seal": "SEAL, α = 0.1",
                "grpo-seal-003": "SEAL, α = 0.03",
                "grpo-seal-03": "SEAL, α = 0.3",
            },
            "GRPO",
        ),
        Part({"gigpo": "bare", "gigpo-seal": "SEAL, α = 0.1"}, "GiGPO"),
        banded=("grpo", "grpo-seal", "gigpo", "gigpo-seal"),
    ),
)  # fmt: skip
AEM = (
    Figure(
        "aem-entropy",
        "Token entropy",
        _ENTROPY,
        (Part({"grpo": "GRPO", "grpo-aem": "AEM", "grpo-aem-rising": "what raises entropy left out"}),),
        smooth=True,
    ),
    Figure(
        "aem-falling",
        "Token entropy: what lowers it left out",
        _ENTROPY,
        (Part({"grpo": "GRPO", "grpo-aem-falling": "what lowers entropy left out, "}),),
        by_seed=("grpo-aem-falling",),
        smooth=True,
    ),
    _by_seed("aem-noise", ", averaged over turns and undivided", {"grpo": "GRPO", "grpo-aem": "AEM"}, study="noise"),
    _success(
        "aem-success",
        "with and without AEM",
        Part({"grpo": "bare", "grpo-aem": "AEM"}, "GRPO"),
        Part({"gspo": "bare", "gspo-aem": "AEM"}, "GSPO"),
        Part({"dapo": "bare", "dapo-aem": "AEM"}, "DAPO"),
    ),
)
FIGURES = {"ActRe": ACTRE, "EPO": EPO, "SEAL": SEAL, "AEM": AEM}
