"""Stops a run that would do nothing: prompts that do not fit, responses without a token, tasks that all fail.

Each check raises the error of the side that has to change: settings, engine or task world. Episodes that go wrong
beside others that do not are data: they are said (messages.py) and the run goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from isentrope.agent.prompts import wording
from isentrope.agent.response_format import VERDICTS, write_response
from isentrope.config.schema import AgentSettings, RunConfig
from isentrope.config.validate import is_remote, trackers_of
from isentrope.core.command import command
from isentrope.core.engine import SAMPLERS_LOST
from isentrope.core.errors import ConfigError, EngineError, TaskError
from isentrope.core.text import count, percent
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.core.types import FAILURES, Episode
from isentrope.engines import registry as engines
from isentrope.loop.messages import failures_in_words
from isentrope.loop.progress import Progress
from isentrope.loop.warned import Warned
from isentrope.metrics.trackers import check_tracker
from isentrope.models.sources.find import model_needs
from isentrope.runs.log import Record
from isentrope.worlds.registry import world_needs

_DETAIL_LENGTH = 400


def check_installed(config: RunConfig, trains: bool = True) -> None:
    """What the settings ask for is installed here. Looked at before a model is fetched or loaded."""
    for name in trackers_of(config.run.track) if trains else ():
        check_tracker(name)
    engines.check_installed(config)
    if not is_remote(config.task.where):
        world = config.task.world
        world_needs(world, config.task.options).check(f"the world {world}", TaskError)
    if engines.capabilities(config).loads_policy:
        model, adapters = config.policy.model, trains and config.policy.lora_rank > 0
        what = "policy.lora_rank" if adapters else f"policy.model = {model}"
        model_needs(model, adapters).check(what, EngineError)


def check_prompt(config: RunConfig) -> None:
    """The pocket model has never read the full prompt: nothing that it answers there is valid."""
    if config.policy.model == "pocket" and config.agent.prompt == "full":
        raise ConfigError(
            'agent.prompt = "full" with policy.model = "pocket": the pocket model can read the brief prompt alone, so '
            "none of its answers would be valid. Leave agent.prompt out, or set it to auto or brief "
            "(--set agent.prompt=brief); or name a language model (--set policy.model=smollm2, a model folder or a "
            "name on the Hugging Face hub)"
        )


def check_room(config: RunConfig, tokenizer: ChatTokenizer) -> None:
    """Before anything is played: the tags of a response need room, and so does a prompt in which no task has said a
    word yet. A tokenizer may write tags in fewer tokens than it does here, hence the half."""
    agent = config.agent
    order = "act" if config.methods else agent.order  # a method may choose the shortest form
    tags = math.ceil(len(tokenizer.answer(write_response(order, "", "a", agent.action_tags))) / 2)
    if agent.max_response < tags:
        raise ConfigError(
            f"agent.max_response = {agent.max_response}: the tags of a response alone take more tokens of this model, "
            f"so that no answer could be valid; set agent.max_response to {4 * tags} or more, or to auto"
        )
    system = wording(agent.prompt).system(order, "", agent.action_tags)
    least = math.ceil(len(tokenizer.opening(system, "")) / tokenizer.ids_per_token)
    if least + agent.max_response > agent.max_context:
        raise ConfigError(
            f"agent.max_context = {agent.max_context}: the prompt has {least} tokens before the task says a word, and "
            f"agent.max_response = {agent.max_response} more have to fit; set agent.max_context to far more than "
            f"{least + agent.max_response}, or to auto"
        )


def check_first_prompts(games: Sequence[Episode], agent: AgentSettings) -> None:
    """Expert games may fit where no game could be played: a whole response has to fit behind the first prompt."""
    shortest = min(len(game.turns[0].context_ids) for game in games)
    if shortest + agent.max_response > agent.max_context:
        raise ConfigError(
            f"agent.max_context = {agent.max_context}: the first prompt of every expert game has {shortest} tokens or "
            f"more, and agent.max_response = {agent.max_response} more have to fit, so the policy could not play one; "
            f"set agent.max_context to far more than {shortest + agent.max_response}, or a smaller agent.max_response"
        )


def look_at_rollout(
    progress: Progress, step: int, episodes: Sequence[Episode], metrics: Mapping[str, float]
) -> list[Record]:
    """Stop where every task failed or nothing was sampled, say what failed, and warn if the policy does not know how to
    answer: the events that this is."""
    check_tasks(episodes)
    if step == 1:  # later on it is data: the tasks of one step may all be too long
        check_sampled(episodes)
    if told := failures_in_words(episodes, metrics):
        progress.say(f"step {step}: {told}")
    lost = lost_samplers(metrics)
    events = [] if lost is None else [lost.event(step)]
    if lost is not None:
        progress.say(lost.line(step))
    if step != 1 or metrics.get("valid_ratio") != 0:
        return events
    warned = no_valid_action(metrics)
    progress.say(f"WARNING: {warned.text}. Try: {warned.remedy}")
    return [*events, warned.event(step)]


def lost_samplers(metrics: Mapping[str, float]) -> Warned | None:
    """Sampler processes that were lost since the step before; who and why was said when it happened."""
    lost, moved, refused = (int(metrics.get(f"engine/{name}", 0)) for name in SAMPLERS_LOST)
    if not lost:
        return None
    text = f"{count(lost, 'sampler')} lost and {count(moved, 'request')} given to others, which draw the same tokens"
    text += f"; {refused} of them had not got the policy's weights" if refused else ""
    remedy = "nothing, unless it goes on: then fewer cluster.engines, or cluster.kind = local to see why"
    return Warned("samplers", text, remedy, {"lost": lost, "moved": moved, "refused": refused})


def no_valid_action(metrics: Mapping[str, float]) -> Warned:
    """Of a first rollout without one: told by what most responses were refused for."""
    refused = {key.removeprefix("verdict/"): share for key, share in metrics.items() if key.startswith("verdict/")}
    reason = max(refused, key=lambda one: refused[one], default="")
    share = f"{percent(refused.get(reason, 0.0))} of them"
    text = "not one response of the first rollout was a valid action"
    warm = f"a warm-up on expert games ({command('sft')} RECIPE --out runs/warm), to train from there (--set "
    warm += "policy.model=runs/warm)"
    if reason == "inadmissible":
        text += f": {share} were in the form that is asked for, but the task does not know the action or cannot do it "
        text += "then"
        remedy = (
            f"agent.show_admissible=true, which lists the actions that can be done; {warm}; whether the rules that "
        )
        remedy += "the task shows say how actions look"
    elif reason == "too_long":
        text += f": {share} were cut off at agent.max_response before they were complete"
        remedy = "a longer response, if the report shows that they begin well; a model that never comes to an end "
        remedy += f"needs {warm}"
    else:
        text += f": {share} were refused as {reason} ({VERDICTS.get(reason, 'for that reason')}). The policy does not "
        text += "know the form of an answer (tags around its action), so there is nothing yet to learn from"
        remedy = f"{warm}; if it should know, see in the report what it writes"
    return Warned("answers", text, remedy, {"refused": refused.get(reason, 0.0)})


def check_tasks(episodes: Sequence[Episode], purpose: str = "learn from", stops: Sequence[str] = FAILURES) -> None:
    """A world whose every task fails is broken: nothing can be learnt from it, and nothing is measured by it."""
    failed = [episode for episode in episodes if episode.stop in stops and not episode.success]
    if failed and len(failed) == len(episodes):
        first = failed[0]
        advice = {
            "engine_error": "",
            "clock": "; raise it, or play fewer games at once (rollout.batch): it counts from the start of them all",
        }.get(first.stop, f"; {command('check-task')} WORLD tests a world alone")
        raise TaskError(
            f"all {len(failed)} episodes failed, so there is nothing to {purpose}. The first, {first.split} game "
            f"{first.index}, ended as {first.stop}: {first.detail[:_DETAIL_LENGTH] or 'no detail'}{advice}"
        )


def check_sampled(episodes: Sequence[Episode], purpose: str = "learn from") -> None:
    """Episodes of which none has a single token that the policy sampled."""
    if not episodes or any(len(turn.response_ids) for episode in episodes for turn in episode.turns):
        return
    count, answered = len(episodes), [episode for episode in episodes if episode.turns]
    if answered:
        responses = sum(len(episode.turns) for episode in answered)
        cut = answered[0].turns[0].stop == "length"
        why = (
            " They were cut off at agent.max_response: a model that reasons where nobody sees it needs more"
            if cut
            else " See what the model answers by itself, and whether its chat template fits (policy.chat_template)"
        )
        raise EngineError(
            f"all {responses} responses in {count} episodes were empty, so there is nothing to {purpose}.{why}"
        )
    short = next((episode for episode in episodes if episode.stop == "context_limit"), None)
    if short is not None:
        raise ConfigError(
            f"agent.max_context is too small for the prompts: not one of {count} episodes had room for a response, so "
            f"there is nothing to {purpose}. The first, {short.split} game {short.index}: {short.detail}. Set "
            "agent.max_context to far more than both together, as conversations grow (--set agent.max_context=auto "
            "takes what the model can), or a smaller agent.max_response"
        )
    first = episodes[0]
    raise TaskError(
        f"not one of {count} episodes came to a first response, so there is nothing to {purpose}. The first, "
        f"{first.split} game {first.index}, ended as {first.stop}: {first.detail[:_DETAIL_LENGTH] or 'no detail'}; "
        f"{command('check-task')} WORLD tests a world alone"
    )
