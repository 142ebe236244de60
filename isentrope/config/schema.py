"""Every setting, its default, what it means and what is allowed.

The settings of a world, a method, an advantage estimator, a loss or an engine live beside it; here they are raw tables
(`[task.options]`, `[method.NAME]`, `Choice`), checked against their owner's dataclass when the run is set up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from isentrope.config.algorithms import ALGORITHMS


class Auto:
    """Marks a value that follows the model: "auto" in a recipe. Until the model is known it is the value that a large
    language model has; `models/auto.py` says what it comes to."""

    def plain(self) -> Any:
        return next(kind for kind in (float, int, str) if isinstance(self, kind))(cast("Any", self))


class AutoFloat(Auto, float):
    pass


class AutoInt(Auto, int):
    pass


class AutoText(Auto, str):
    pass


def setting(
    default: Any,
    doc: str,
    *,
    choices: tuple[str, ...] | None = None,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
) -> Any:
    """A dataclass field with its meaning and its limits (`low`, `high` included, `above` excluded)."""
    limits: dict[str, Any] = {"doc": doc, "choices": choices, "low": low, "high": high, "above": above}
    if isinstance(default, Auto):
        limits["auto"] = default
    if isinstance(default, dict):
        table = cast("dict[str, Any]", default)
        return field(default_factory=lambda: dict(table), metadata=limits)
    return field(default=default, metadata=limits)


@dataclass(frozen=True)
class Choice:
    """A part that does one job of the run, and the settings that only it reads. In a recipe both stand in one table:
    `[learn.advantage]`, `kind = "gigpo"`, `step_weight = 0.5`; `learn.advantage = "gigpo"` says the kind alone."""

    kind: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def choice(default: str, doc: str) -> Any:
    """The field of a `Choice`."""
    return field(default_factory=lambda: Choice(default), metadata={"doc": doc})


@dataclass(frozen=True)
class RunSettings:
    seed: int = setting(0, "seed of everything random in the run", low=0)
    steps: int = setting(100, "training steps: one rollout and one update each", low=1)
    device: str = setting("auto", "auto takes a GPU if there is one; or cpu, cuda, cuda:1, mps")
    dtype: str = setting(
        "auto",
        "of the computation; auto: bfloat16 on a GPU from 50 million parameters on, else float32",
        choices=("auto", "float32", "bfloat16"),
    )
    weights: str = setting(
        "auto",
        "how weights are held; bfloat16 has float32 copies that learn; auto: as run.dtype computes",
        choices=("auto", "float32", "bfloat16"),
    )
    threads: int = setting(
        0, "torch threads on the CPU; 0: OMP_NUM_THREADS, else one per core not used by task workers", low=0
    )
    eval_every: int = setting(0, "evaluate every so many steps; 0: only before the first and after the last", low=0)
    checkpoint_every: int = setting(10, "write a checkpoint every so many steps", low=1)
    keep_last: int = setting(
        2, "checkpoints to keep besides the best one; as many again of those that alarms wrote", low=1
    )
    store_episodes: int = setting(
        1,
        "store the training episodes of every so many steps; 0: of none (those of the first and last evaluation always "
        "are)",
        low=0,
    )
    grace: float = setting(
        20.0,
        "seconds in which a run ends that SIGTERM, SIGHUP or SIGUSR1 asks to end: it finishes its step if that takes "
        "less, and saves",
        low=0,
    )
    track: str = setting(
        "",
        "trackers that get the metrics besides TensorBoard, which always does: wandb, mlflow, trackio, several with "
        "commas; on this machine only, unless their own environment variables say otherwise",
    )


@dataclass(frozen=True)
class TaskSettings:
    world: str = setting("household", "the task world")
    where: str = setting(
        "auto",
        "where tasks are played: auto (in worker processes if there are any, else as the world prefers), local, "
        "processes, or the addresses of task servers, with commas between them",
    )
    workers: int = setting(
        0, "worker processes for tasks; 0 plays them in the trainer's process, unless task.where says otherwise", low=0
    )
    key_env: str = setting("", "environment variable with the key of the task servers; empty: they need none")
    max_turns: int = setting(50, "turns before an episode is cut off", low=1)
    step_seconds: float = setting(30.0, "a task that takes longer for one step is recorded as failed", above=0)
    episode_seconds: float = setting(600.0, "an episode that takes longer, sampling included, is cut off", above=0)
    success_reward: float = setting(10.0, "reward of a solved task")
    invalid_reward: float = setting(-0.1, "reward of a turn whose response was not a valid action", high=0)
    sampler: Choice = choice(
        "in_turn",
        "which tasks a step plays: in_turn goes through the split, in a new order each time; pass_rate, kinds and "
        "schedule are curricula",
    )
    reward: str = setting(
        "", "module:function that gives the rewards of an episode instead of the world; empty: the world's own"
    )
    options: dict[str, Any] = setting({}, "the world's own settings: see its docs page")


@dataclass(frozen=True)
class AgentSettings:
    order: str = setting(
        "think_act",
        "form of a response; plain: all of it is the action, a thought in front aside",
        choices=("think_act", "act_think", "act", "plain"),
    )
    context: str = setting(
        "full",
        "full: one growing conversation; window: each turn prompted anew with the last turns",
        choices=("full", "window"),
    )
    window: int = setting(2, "turns shown in window context", low=0)
    prompt: str = setting(
        AutoText("full"),
        "wording of the prompt; auto: brief for the pocket model, which can read no other, else full",
        choices=("full", "brief"),
    )
    action_tags: tuple[str, ...] = setting(
        ("action",),
        "tags that hold the action of a response; with others than action, such as search and answer, the task is "
        "given search[...] or answer[...]",
    )
    max_action: int = setting(1000, "bytes of one action; a longer one is invalid", low=1, high=100_000)
    show_admissible: bool = setting(False, "list the admissible actions in each observation")
    max_response: int = setting(
        AutoInt(512), "tokens of one response; auto: 512, for the pocket model 32, at most half of max_context", low=1
    )
    max_context: int = setting(
        AutoInt(4096),
        "tokens of a conversation, the next response included; auto: 4096, or the model's positions if it has fewer, "
        "for the pocket model 1536",
        low=16,
    )
    overflow: str = setting(
        "drop",
        "a conversation that outgrows max_context: drop leaves its oldest turns out, end ends the episode",
        choices=("drop", "end"),
    )


@dataclass(frozen=True)
class PolicySettings:
    model: str = setting(
        "pocket",
        "pocket: the small model shipped with the package; new: the same shape with random weights; "
        "smollm2; a model folder, a GGUF file, the folder of an earlier run; or a name on the Hugging Face hub",
    )
    chat_template: str = setting("", "file with a chat template, or plain; empty: the model's own")
    lora_rank: int = setting(0, "train adapters of this rank instead of all weights; 0: all weights", low=0)
    lora_alpha: float = setting(32.0, "adapters are scaled by lora_alpha / lora_rank", above=0)
    lora_targets: tuple[str, ...] = setting((), "names of the layers that get adapters; empty: all linear ones")
    layers: int = setting(4, "layers, for model = new", low=1)
    width: int = setting(128, "hidden size, for model = new", low=8)
    heads: int = setting(4, "attention heads, for model = new", low=1)


@dataclass(frozen=True)
class RolloutSettings:
    groups: int = setting(16, "task instances per step", low=1)
    group_size: int = setting(8, "episodes per task instance", low=1)
    temperature: float = setting(1.0, "sampling temperature in training", low=0.01)
    batch: int = setting(256, "conversations sampled at once", low=1)
    ahead: int = setting(
        0,
        "1: play the next step's episodes while the policy learns from this one's, with the weights from before that "
        "(needs learn.old_logprobs = recompute and learn.mismatch = truncate); 0: always with the newest weights",
        low=0,
        high=1,
    )


@dataclass(frozen=True)
class ClusterSettings:
    kind: str = setting(
        "local",
        "local: the engine is in the learner's process; processes: engines in processes of their own, here",
        choices=("local", "processes"),
    )
    trainers: int = setting(1, "processes: how many ranks learn, each in a process of its own", low=1, high=64)
    engines: int = setting(1, "processes: how many engines sample", low=1, high=64)
    seconds: float = setting(
        600.0,
        "processes: a sampler that is asked something and draws no token for so long is ended and renewed; a rank that "
        "learns waits so long for the others",
        above=0,
    )


@dataclass(frozen=True)
class LearnSettings:
    algorithm: str = setting("grpo", "the base algorithm: defaults for the settings below", choices=tuple(ALGORITHMS))
    advantage: Choice = choice("grpo", "how advantages are estimated")
    loss: Choice = choice(
        "clip",
        "clip: ratio per token, clipped; sequence: ratio per response, clipped; policy_gradient: no ratio",
    )
    lr: float = setting(
        AutoFloat(1e-6), "peak learning rate; auto: by the model's size, see isentrope docs training-models", above=0
    )
    warmup: float = setting(0.1, "share of the updates in which the learning rate rises", low=0, high=1)
    floor: float = setting(0.2, "the cosine ends at this share of the peak", low=0, high=1)
    optimiser: str = setting(
        "adamw",
        "adamw: float32 moments; adamw8: 8-bit ones, with a scale for every 256, for models that would not fit else",
        choices=("adamw", "adamw8"),
    )
    moments: str = setting(
        "card",
        "where AdamW's moments are kept: with the weights, or in the host's memory, from where they come and go in "
        "every update",
        choices=("card", "host"),
    )
    weight_decay: float = setting(0.0, "AdamW's weight decay", low=0)
    beta1: float = setting(0.9, "AdamW's first decay rate", low=0, high=1)
    beta2: float = setting(0.999, "AdamW's second decay rate", low=0, high=1)
    grad_clip: float = setting(1.0, "largest norm of the gradient", above=0)
    kl: float = setting(0.01, "weight of the KL divergence to the reference, the policy at step 0", low=0)
    kl_estimator: str = setting("k3", "estimator of the KL divergence", choices=("k1", "k2", "k3"))
    kl_in: str = setting("loss", "where the KL term stands", choices=("loss", "reward"))
    aggregation: str = setting(
        "token",
        "how token losses are averaged: over all tokens; over turns and episodes; over responses; over episodes; "
        "by a constant length",
        choices=("token", "turn", "sequence", "episode", "constant"),
    )
    constant_length: int = setting(
        0, "aggregation constant: tokens an episode is divided by; 0: task.max_turns × agent.max_response", low=0
    )
    resample: int = setting(0, "dynamic sampling: times that groups with equal returns are replaced by new ones", low=0)
    resample_by: str = setting(
        "return", "groups are equal if all their returns are, or all their successes", choices=("return", "success")
    )
    overlong: float = setting(
        0.0, "share of agent.max_response over which a penalty for long responses grows; 0: none", low=0, high=1
    )
    overlong_penalty: float = setting(1.0, "reward taken off a response of full length", low=0)
    mask_truncated: bool = setting(False, "do not learn from episodes that were cut off")
    epochs: int = setting(1, "passes over a step's episodes", low=1)
    mini_batches: int = setting(1, "updates per pass; episodes of a group stay together", low=1)
    micro_tokens: int = setting(16384, "tokens per forward and backward pass; gradients accumulate", low=64)
    row_tokens: int = setting(
        0,
        "sequences are packed into rows of this length; 0: the longest sequence, or micro_tokens where attention goes "
        "by sequences (see share_prefixes)",
        low=0,
    )
    old_logprobs: str = setting(
        "sampler",
        "log-probs of the policy that sampled: as the sampler gave them; computed again before the update; or auto: "
        "computed again until mismatch/kl is within mismatch_limit, and again when it leaves it",
        choices=("sampler", "recompute", "auto"),
    )
    mismatch: str = setting(
        "keep",
        "sampler and trainer give different log-probs: keep, or truncate: weigh each token by their ratio, cut off at "
        "mismatch_cap (needs old_logprobs = recompute or auto)",
        choices=("keep", "truncate"),
    )
    mismatch_cap: float = setting(2.0, "largest weight that truncate gives a token", above=0)
    mismatch_limit: float = setting(
        0.001, "old_logprobs = auto: mismatch/kl up to which the sampler's log-probs are good enough", low=0
    )
    share_prefixes: str = setting(
        "auto",
        "compute once what the prompts of a group have in common; auto: where the update's attention goes by sequences "
        "instead of rows, as it does for Llama-shaped models in bfloat16 on a GPU and in float32 on a CPU",
        choices=("auto", "on", "off"),
    )
    gradient_checkpointing: bool = setting(False, "compute activations twice instead of keeping them: less memory")
    master_weights: bool = setting(True, "bfloat16 weights: update float32 copies, so that small updates are not lost")
    max_skips: int = setting(5, "updates with a non-finite loss or gradient skipped in a row before giving up", low=0)


@dataclass(frozen=True)
class CriticSettings:
    kind: str = setting(
        "separate", "a model of its own, or a head on the policy's hidden states", choices=("separate", "head")
    )
    lr: float = setting(1e-5, "peak learning rate", above=0)
    value_clip: float = setting(0.5, "values move no further than this per step; 0: freely", low=0)
    warmup: int = setting(0, "steps at the start in which only the critic learns", low=0)
    trunk: float = setting(0.0, "head: share of the value gradient that reaches the policy", low=0, high=1)


@dataclass(frozen=True)
class SftSettings:
    source: str = setting(
        "expert",
        "whose games to imitate: an expert's, or the policy's own successes",
        choices=("expert", "own"),
    )
    games: int = setting(200, "games to imitate; own: games to play", low=1)
    samples: int = setting(4, "own: episodes per game", low=1)
    orders: tuple[str, ...] = setting(
        (),
        "response forms to imitate each game in; empty: agent.order",
        choices=("think_act", "act_think", "act", "plain"),
    )
    epochs: float = setting(10.0, "passes over them", above=0)
    lr: float = setting(
        AutoFloat(1e-3), "peak learning rate; auto: by the model's size, see isentrope docs training-models", above=0
    )
    batch_games: int = setting(8, "games per update", low=1)
    first_game: int = setting(0, "index of the first game in the train split", low=0)
    all_tokens: bool = setting(False, "learn to predict the observations too, not only the responses")


@dataclass(frozen=True)
class EvalSettings:
    games: int = setting(512, "games per split", low=1)
    temperature: float = setting(0.4, "sampling temperature; 0 takes the most likely token", low=0)
    splits: tuple[str, ...] = setting((), "splits to evaluate on; empty: all that the world has besides train")
    quick_games: int = setting(128, "games per split for the evaluations during a run", low=1)
    first_game: int = setting(0, "index of the first game; move it to look at games no recipe was chosen on", low=0)


@dataclass(frozen=True)
class InstrumentSettings:
    probe_every: int = setting(10, "run the probes at the first step and then every so many; 0: never", low=0)
    probe_states: int = setting(16, "states on which thinking is probed: always the same ones", low=0)
    probe_groups: int = setting(8, "groups of a step whose hidden states and gradients are probed; 0: all", low=0)
    probe_gradient: str = setting(
        "head",
        "gradients that interfere: of the output matrix, which is cheap, or of all weights that learn, which costs a "
        "pass forward and back per episode and the memory of a group's gradients",
        choices=("head", "all"),
    )
    on_alarm: str = setting(
        "nothing",
        "what an alarm does besides being said and recorded: nothing, checkpoint, pause (the run stops after the step, "
        "to be resumed), or switch:METHOD (a method is on from the next step)",
    )
    alarms: tuple[str, ...] = setting(
        ("eruption", "collapse", "likelihood_fall", "duplication", "mismatch"),
        "the alarms that on_alarm acts on; all of them are recorded",
        choices=(
            "eruption", "collapse", "likelihood_fall", "duplication", "mismatch", "gradient_spike", "no_signal",
            "not_finite",
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    run: RunSettings = field(default_factory=RunSettings)
    task: TaskSettings = field(default_factory=TaskSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    engine: Choice = choice(
        "auto",
        "what samples: torch, in this process; fast, the same on a GPU, for Llama-shaped models; auto: fast "
        "where it can be, else torch; vllm; or openai: a server, for evaluation alone",
    )
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    learn: LearnSettings = field(default_factory=LearnSettings)
    critic: CriticSettings = field(default_factory=CriticSettings)
    sft: SftSettings = field(default_factory=SftSettings)
    eval: EvalSettings = field(default_factory=EvalSettings)
    instruments: InstrumentSettings = field(default_factory=InstrumentSettings)
    methods: tuple[str, ...] = setting((), "entropy methods, applied in this order")
    method: dict[str, Any] = setting({}, "one table of settings per method: [method.NAME]")
