"""The glossary: one sentence for every number that a run writes, with its unit and where it comes from.

A part in braces stands for any name: `success/{kind}` is written as `success/heat`. `MetricsLog` refuses a
key that is not here and that no part of the run declares, so the glossary is complete by construction. Methods, and
other parts, declare their metrics in their classes. docs/metrics.md is made from both:

    python -m tools.glossary_docs
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

from isentrope.core.metric import KEY, Metric

# Where numbers come from, and what comes from there: key | unit | meaning, which may go on in the next line. An exact
# key stands before the pattern that would match it too.
_TABLE = """
the loop
  step | steps | Number of the training step: one rollout and one update each.
  plan/{name} | as the method says | {name}, set for the step's rollout by a method.
  resample/attempts | attempts | Times that groups were played in the step by dynamic sampling.
  resample/dropped | groups | Groups played and dropped because their episodes did equally well.
  resample/missing | groups | Groups that the step had to learn without after the last attempt.
the rollout
  engine/cached | share | vLLM: share of the prompts' tokens it already held since the step before.
  engine/drafted | tokens | Tokens that were guessed ahead (engine.drafts), by the torch engine or the native one.
  engine/accepted | tokens | Guessed tokens that were what was drawn, and were kept.
  engine/rows | responses | Native engine: mean number of responses that a step of the model went on with.
  engine/steps | steps | Native engine: steps of the model, each at least a token more for all responses under way.
  engine/prefills | passes | Native engine: passes in which new prompts were read.
  engine/read | tokens | Native engine: prompt tokens that had to be read.
  engine/held | share | Native engine: share of the prompts' tokens that it held already or shared.
  engine/samplers | samplers | Sampler processes that there are (cluster.engines), those that were given up not counted.
  engine/samplers_lost | samplers | Sampler processes that ended, hung or had other weights: renewed or given up.
  engine/requests_moved | requests | Requests that another sampler answered because the first was lost.
  engine/weights_refused | samplers | Times that a sampler did not have the learner's weights after an update.
  return/mean | reward | Mean over episodes of the sum of their rewards.
  return/std | reward | Standard deviation of the returns over the episodes of the step.
  reward/{name} | reward | Mean of what the reward function {name} gave, before its weight.
  success/all | share | Share of the episodes that solved their task.
  success/{kind} | share | Share of the episodes of the task type {kind} that solved their task.
  episode/turns | turns | Mean number of turns of an episode.
  episode/tokens | tokens | Mean number of sampled tokens of an episode, all its responses together.
  response/tokens | tokens | Mean number of tokens of a response.
  response/outcome/solved | tokens | Mean number of tokens of a response, in solved episodes.
  response/outcome/failed | tokens | Mean number of tokens of a response, in episodes that were not solved and did not
      break.
  response/thoughts | share | Share of the turns whose response has a thought.
  response/think_tokens | tokens | Mean number of tokens between the think tags.
  response/action_tokens | tokens | Mean number of tokens between the action tags.
  episode/same | share | Share of the groups whose episodes are one and the same, token by token.
  observation/characters | characters | Mean length of an observation.
  context/tokens | tokens | Mean number of tokens in front of a response, earlier turns included.
  context/dropped | turns | Mean number of earlier turns left out in front of a response, for length.
  context/shortened | share | Share of the turns in front of which earlier turns were left out.
  valid_ratio | share | Share of the turns whose response was a valid action.
  verdict/{reason} | share | Share of the turns whose response was refused for the reason {reason}.
  accepted/{word} | share | Share of the actions that begin with {word} that were valid, where there are five and 2 %.
  stop/{reason} | share | Share of the episodes that ended for the reason {reason}.
  failures | episodes | Episodes lost because a task or a server hung, died or broke its contract.
  failures/task_error | episodes | Episodes lost because the task raised an error.
  failures/time_limit | episodes | Episodes lost because a step took longer than task.step_seconds.
  failures/worker_died | episodes | Episodes lost with the worker process or task server they ran in.
  failures/garbage | episodes | Episodes lost to an answer of the task that could not be used.
  failures/engine_error | episodes | Episodes lost because the policy's engine had no answer.
  mended/text_cut | turns | Turns to which the task answered with an observation so long that it was cut.
  mended/actions_cut | turns | Turns to which the task answered with a list of actions so long that it was cut.
  mended/info_cut | turns | Turns to which the task answered with extra figures that had to be cut.
  mended/encoding | turns | Turns to which the task answered with characters that do not exist: replaced.
  tasks/workers_replaced | workers | Worker processes that hung or died in the step and were replaced.
  tasks/replayed | episodes | Times an episode was played again because its worker fell under it.
  tasks/threads_left | threads | Threads left behind with a task that hung.
  tasks/servers_lost | servers | Times that a task server was lost.
  entropy/token | nats | Entropy of the next-token distribution, mean over all response tokens.
  entropy/think | nats | Mean token entropy between the think tags.
  entropy/action | nats | Mean token entropy between the action tags.
  entropy/other | nats | Mean token entropy outside thoughts and actions: tags, stray text, thoughts that were never
      closed.
  entropy/response | nats | Mean over responses of the mean token entropy of a response.
  entropy/concentration | share | Share of all entropy that is in the twentieth of the responses with most of it; high:
      a few are noise.
  entropy/turn | nats | Token entropy averaged over a turn, then over turns, then over episodes.
  entropy/episode | nats | Mean over episodes of the mean token entropy of an episode.
  entropy/first10 | nats | Mean over episodes of the entropy of their first ten response tokens.
  entropy/last10 | nats | Mean over episodes of the entropy of their last ten response tokens.
  surprisal/response | nats | Minus the log-probability of a response, mean over responses.
the update
  loss/policy | loss | The policy-gradient loss, mean over the step's updates.
  loss/kl | loss | The weighted KL term of the loss, mean over the step's updates.
  loss/total | loss | All terms of the loss together, mean over the step's updates.
  loss/{method} | loss | The term that the method {method} adds to the loss.
  kl/k1 | nats | KL to the reference policy per token, estimated as d = log-prob - reference log-prob.
  kl/k2 | nats | KL to the reference policy per token, estimated as d²/2.
  kl/k3 | nats | KL to the reference policy per token, estimated as exp(-d) - 1 + d.
  kl/old | nats | KL (k3) to the policy that sampled the step, per token.
  clip/fraction | share | Share of the tokens whose gradient was cut by the clip, on either side.
  clip/low | share | Share of the tokens clipped below 1 - clip_low.
  clip/high | share | Share of the tokens clipped above 1 + clip_high.
  ratio/min | ratio | Smallest ratio of new to old probability over the step's tokens.
  ratio/max | ratio | Largest ratio of new to old probability over the step's tokens.
  ratio/mean | ratio | Mean ratio of new to old probability over the step's tokens.
  advantage/mean | advantage | Mean advantage over the step's response tokens, before methods.
  advantage/std | advantage | Standard deviation of the advantage over the step's response tokens.
  advantage/learnt | advantage | Standard deviation of the advantage that is learnt from, after all methods.
  advantage/zero_groups | share | Share of the groups with equal returns, which teach nothing.
  overlong/mean | reward | Mean reward taken off a response because it was long.
  overlong/share | share | Share of the responses that had reward taken off because they were long.
  grad_norm | norm | Norm of the gradient before clipping, mean over the step's updates.
  lr | per update | Learning rate, mean over the step's updates.
  update/skipped | updates | Updates left out since the start of the run: loss or gradient, or every token's numbers,
      were not finite.
  update/tokens | share | Share of the response tokens for which the policy's loss has a gradient.
  update/masked | share | Share of the episodes not learnt from because they were cut off.
  update/dropped_tokens | tokens | Tokens left out of the step's updates: a log-prob, entropy, value or advantage was
      not finite.
  update/dropped_share | share | The same as a share of the step's response tokens.
  update/count | updates | Updates tried in the step, those left out included.
  mismatch/logp_mean | nats | Mean difference, without sign, of sampler's and trainer's log-probs.
  mismatch/logp_max | nats | Largest difference, without sign, of sampler's and trainer's log-probs.
  mismatch/ratio_mean | ratio | Mean ratio of the trainer's to the sampler's probability; with rollouts ahead their
      weights differ too.
  mismatch/ratio_max | ratio | Largest ratio of the trainer's to the sampler's probability.
  mismatch/truncated | share | Share of the tokens whose ratio is above learn.mismatch_cap.
  mismatch/recomputed | 0 or 1 | Whether old_logprobs = auto computed the old log-probs again.
  mismatch/kl | nats | KL divergence of the sampler from the trainer (k3); with rollouts ahead their weights differ too.
the instruments
  entropy/turns/{first} | nats | Mean response entropy from turn {first} of an episode up to its double.
  entropy/kind/{kind} | nats | Mean token entropy of the episodes of the task type {kind}.
  entropy/outcome/solved | nats | Mean token entropy of the episodes that solved their task.
  entropy/outcome/failed | nats | Mean token entropy of the episodes in which the policy failed.
  surprisal/token | nats | Minus the log-probability of a sampled token, mean over all tokens.
  surprisal/relative | nats | Surprisal of a token minus the entropy it was drawn at, mean over tokens.
  likelihood/valid | nats | Log-probability of a token, mean over the tokens of valid responses.
  likelihood/solved | nats | Log-probability of a token, mean over the tokens of solved episodes.
  likelihood/failed | nats | Log-probability of a token, mean over episodes in which the policy failed.
  temperature/mean | temperature | Mean temperature that the response tokens were sampled at; 0: greedy.
  temperature/not_one | share | Share of the response tokens whose entropy and log-prob were measured at another
      temperature than 1.
  degeneracy/duplication | share | Share of the sentences that stand more than once in their response.
  degeneracy/loops | share | Share of the responses in which a stretch of tokens is repeated in a row.
  degeneracy/hallucinated | share | Share of the actions that were refused and name what is not there.
  degeneracy/repeated_actions | share | Share of the later turns with the action of the turn before.
  degeneracy/judge | 0 to 10 | How degenerate another model finds the episodes: 0 is clean.
the course of the run
  drift/predicted | nats, unscaled | Forecast of the next change of entropy: mean of A · (S - H), tokens weighed as the
      update weighed them.
  drift/measured | nats | Token entropy of this step minus that of the step before.
  drift/agreement | share | Share of the drifts so far that had the sign of the forecast before.
  drift/correlation | correlation | Correlation of forecast and measured drift over the steps so far.
  degeneracy/length_drift | ratio | Tokens of a response over their mean in the first five steps.
  phase | phase | Phase of the entropy curve: 0 descent, 1 eruption, 2 subsidence.
  alarm/{name} | alarm | 1 at a step at which the alarm {name} was given.
the probes
  probe/delta_h | nats | How much thinking lowers the entropy of the same action, at the same states.
  probe/action_entropy | nats | Mean token entropy of the probed actions, after their thoughts.
  probe/action_entropy_without | nats | Mean token entropy of the probed actions, the thoughts left out.
  probe/states | states | States on which thinking was probed: the same ones every time.
  probe/similarity/solved | cosine | Similarity of the hidden states of two solved episodes, mean.
  probe/similarity/failed | cosine | Similarity of the hidden states of two failed episodes, mean.
  probe/similarity/between | cosine | Similarity of the hidden states of a solved and a failed episode.
  probe/accuracy | share | Share of held-out episodes whose outcome a linear probe tells right.
  probe/majority | share | Share of the more frequent outcome: what a probe has to beat.
  probe/interference/sum | squared norm | Σ_j A_j c_j of a group, mean over groups: below 0, learning lowers the
      likelihood of its episodes.
  probe/interference/positive_per_token | squared norm | c_j with gradients taken a token, over episodes with positive
      advantage.
  probe/interference/negative_per_token | squared norm | c_j with gradients taken a token, over episodes with negative
      advantage.
  probe/interference/{sign} | squared norm | c_j: mean product of an episode's gradient with those of its group, over
      those with {sign} advantage.
  probe/seconds | seconds | What the probes of the step took.
the critic
  critic/loss | loss | The critic's squared error, clipped and halved, mean over the step's updates.
  critic/value | reward | Mean value that the critic gives to the step's response tokens.
  critic/explained | share | Share of the returns' variance that the critic foresaw: 1 is perfect.
  critic/grad_norm | norm | Norm of the critic's gradient before clipping.
an evaluation
  eval/{split}/success | share | Share of the games of the {split} split that were solved.
  eval/{split}/success/{kind} | share | Share of the {split} games of type {kind} that were solved.
  eval/{split}/low | share | Lower end of the success's 95 % interval (Wilson) on {split} games.
  eval/{split}/high | share | Upper end of the success's 95 % interval (Wilson) on {split} games.
  eval/{split}/games | games | Games of the {split} split that were played.
  eval/{split}/games/{kind} | games | Games of type {kind} of the {split} split that were played.
  eval/{split}/return | reward | Mean return on the {split} split.
  eval/{split}/reward/{name} | reward | Mean of what the reward function {name} gave on {split} games, unweighted.
  eval/{split}/turns | turns | Mean number of turns of a game on the {split} split.
  eval/{split}/failures | games | Games of {split} lost to a fault or to the clock: not solved.
  eval/{split}/failures/{kind} | games | Games of {split} that ended with a failure of the kind {kind}.
  eval/{split}/cut/{stop} | games | Games of {split} that ended as {stop}: clock or context_limit.
  eval/{split}/thoughts | share | Share of the turns on {split} games whose response has a thought.
  eval/{split}/valid_ratio | share | Share of the turns on {split} games that were valid actions.
another trainer
  rewards/{function} | reward | Mean of what the reward function {function} gave, before its weight, in a run of TRL.
a server
  engine/requests | requests | Responses that the server was asked for, those that failed included.
  engine/retries | requests | Times that a request to the server was made again after a fault.
  engine/failed | requests | Requests that the server left without an answer in the end.
  engine/prompt_tokens | tokens | Prompt tokens that the server says it read.
  engine/sampled_tokens | tokens | Tokens that the server says it sampled.
  engine/uncounted | requests | Answers of which the server did not say how many tokens they took.
  engine/cost | as the prices | The server's tokens at engine.price_in and engine.price_out.
the imitation
  sft/loss | nats | Mean cross-entropy of the imitated tokens: an expert's, or the policy's own.
  sft/epoch | epochs | Passes over the imitated games so far.
  rft/solved | share | Share of the policy's own games that it solved: those are imitated.
the clock
  seconds/{stage} | seconds | Time spent in the stage {stage}.
  rollout_seconds/engine | seconds | Of the rollout: the engine sampled.
  rollout_seconds/tasks | seconds | Of the rollout: the engine had nothing to do and waited for tasks.
  rollout_seconds/host | seconds | Of the rollout: prompts, parsing and records, the engine idle.
  rollout_seconds/tasks_idle | seconds | Of the engine's time: no task was played, all waited for it.
  cores/waited | seconds/s | Threads of this process, ready to run, waited for a core so long (Linux).
  memory/peak | GiB | Most main memory that the run's process has held so far (Linux).
  memory/gpu | GiB | Most GPU memory that torch has held for the run so far.
  tokens_per_second/{stage} | tokens/s | Tokens that the stage {stage} worked through per second.
"""


def _glossary(table: str) -> dict[str, tuple[Metric, ...]]:
    glossary: dict[str, tuple[Metric, ...]] = {}
    for section in re.split(r"\n(?=\S)", table.strip()):
        source, *rows = re.split(r"\n  (?=\S)", section)
        cells = [" ".join(row.split()).split(" | ") for row in rows]
        glossary[source] = tuple(Metric(key, meaning, unit) for key, unit, meaning in cells)
    return glossary


GLOSSARY = _glossary(_TABLE)
_ENTRIES: dict[str, Metric] = {entry.key: entry for section in GLOSSARY.values() for entry in section}
_DECLARED: dict[str, Metric] = {}  # by the parts of runs that this process has opened


def declare(metrics: Iterable[Metric]) -> None:
    """Take the metrics of a run's parts in. What the glossary says itself is not replaced."""
    _DECLARED.update({metric.key: metric for metric in metrics if metric.key not in _ENTRIES})
    entry_of.cache_clear()


def with_parts() -> dict[str, tuple[Metric, ...]]:
    """The glossary, and what the methods and advantage estimators of this package declare. Imports them."""
    from isentrope.learning.registry import ADVANTAGES
    from isentrope.methods.registry import METHODS
    from isentrope.rollout.sampler import SAMPLERS

    ours = [parts.load(name) for parts in (METHODS, ADVANTAGES, SAMPLERS) for name in parts.inside]
    declared = {metric.key: metric for part in ours for metric in part.metrics}
    return {**GLOSSARY, "methods, advantage estimators and task samplers": tuple(declared.values())}


def declared_in(about: Mapping[str, Any]) -> list[Metric]:
    """What a run recorded of the metrics of its parts (run.json), which need not be here any more. Untrusted."""
    found: list[Metric] = []
    recorded = about.get("metrics")
    for key, told in list(cast("dict[str, Any]", recorded).items())[:1000] if isinstance(recorded, dict) else ():
        if _can_be_declared(str(key)) and isinstance(told, list) and len(cast("list[Any]", told)) == 2:
            unit, meaning = (str(text)[:300] for text in cast("list[Any]", told))
            found.append(Metric(str(key), meaning, unit))
    return found


def _can_be_declared(key: str) -> bool:
    """Names in braces that are whole parts of the key, each once: others could take for ever to match."""
    names = [part for part in key.split("/") if "{" in part or "}" in part]
    whole = all(re.fullmatch(r"\{[A-Za-z]\w{0,30}\}", name) for name in names) and len(names) <= 4
    return len(key) <= 200 and KEY.fullmatch(key) is not None and whole and len(set(names)) == len(names)


class UnknownMetric(KeyError):
    """Names the nearest metric, but only where it is read: a log of another version may have thousands of keys."""

    def __str__(self) -> str:
        key = str(self.args[0])
        near = difflib.get_close_matches(key, _ENTRIES, n=1, cutoff=0.0)[0]
        return f"no metric is called {key!r}; did you mean {near!r}? Every metric needs an entry in glossary.py"


@lru_cache(maxsize=4096)  # a run writes the same hundred keys at every step
def entry_of(key: str) -> Metric:
    """The metric that a key is written under; KeyError, with the nearest name, for an unknown one."""
    exact = _ENTRIES.get(key) or _DECLARED.get(key)
    if exact is not None and "{" not in key:
        return exact
    for entries in (_DECLARED, _of_our_parts(key), _ENTRIES):
        for entry in entries.values():
            if entry.match(key) is not None:
                return entry
    raise UnknownMetric(key)


def _of_our_parts(key: str) -> dict[str, Metric]:
    """What the method or advantage estimator of this package that the key is called after declares."""
    from isentrope.learning.registry import ADVANTAGES
    from isentrope.methods.registry import METHODS

    name = key.split("/")[0]
    name = "actre" if name == "plan" else name  # the one method of ours whose plan has notes
    for parts in (METHODS, ADVANTAGES):
        if name in parts.inside:
            return {metric.key: metric for metric in parts.load(name).metrics}
    return {}


def sentence(key: str) -> str:
    """What the key means, with its names filled in."""
    entry = entry_of(key)
    text = entry.meaning
    for name, value in (entry.match(key) or {}).items():
        text = text.replace("{" + name + "}", value)
    return text
