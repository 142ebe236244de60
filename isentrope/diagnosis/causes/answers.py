"""Causes that lie in how games are played: answers that are cut or refused, and games that end too soon or never."""

from __future__ import annotations

from isentrope.agent.response_format import VERDICTS
from isentrope.core.text import count, listed, nats, percent
from isentrope.diagnosis.causes.reading import observations_cut
from isentrope.diagnosis.causes.suspect import suspect
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import Finding

MANY = 0.25  # share of the responses that are cut from the start
KNOWN = 0.4  # below this share of valid turns from the start the policy does not know what to answer
ELSEWHERE = 0.5  # ... unless so many are valid in an evaluation, at its temperature
SHORT_GAME, SHORT = 5, 8  # turns in which hardly any errand is done, and few
AT_LIMIT = 0.9  # share of the episodes; lost games end there anyhow
HURRIED = 0.8  # ... where the limit is short and success is seen not to rise
COOL, HOT = 0.45, 1.25  # sampling temperatures beyond which they are odd
FROZEN = 0.1  # a temperature at which even a rise is chance: all episodes of a group are the same
WARM_UP = "a warm-up (isentrope sft, then policy.model=its folder)"


def failures(facts: Facts) -> Finding | None:
    """Episodes that broke."""
    share, lost = facts.lost_episodes, "episodes"
    clock = facts.share("stop/clock")
    if not facts.steps:  # it stopped before its first step: only the evaluation before it tells
        share, clock, lost = facts.of_games("failures"), facts.of_games("cut/clock"), "games of its first evaluation"
    if max(share, clock) < 0.05:
        return None
    if clock > share:
        claim = f"Games are cut off by the clock: {percent(clock)} of the {lost} took longer than task.episode_seconds."
        remedy = ("a larger task.episode_seconds", "faster tasks (isentrope check-task times them)")
        return suspect("clock", 0.75 + clock / 4, claim, {"share": clock}, remedy)
    kinds = facts.failure_kinds
    told = listed([f"{number:.0f} {kind}" for kind, number in kinds.items()])
    claim = f"Episodes are lost: {percent(share)} of {'them' if facts.steps else f'the {lost}'} broke for reasons "
    claim += f"outside of the policy{f' ({told})' if told else ''}, and nothing is learnt from those."
    if kinds.get("engine_error") and kinds["engine_error"] == max(kinds.values()):
        remedy: tuple[str, ...] = ("a look at the engine's own log: it had no answer",)
    else:
        remedy = ("isentrope check-task, which plays the task and says where it breaks",)
        remedy += ("a larger task.step_seconds, if tasks are slow",) if "time_limit" in kinds else ()
    return suspect("failures", 0.75 + share, claim, {"share": share} | kinds, remedy)


def responses_cut(facts: Facts) -> Finding | None:
    """Responses that reach the length limit from the start, though they begin as they should."""
    cut, first, limit = (
        facts.share("verdict/too_long"),
        facts.early("verdict/too_long"),
        facts.course.amount("agent.max_response"),
    )
    if first < MANY or cut < (0.4 if facts.fine else MANY):
        return None
    short = limit is not None and limit < facts.usual_response / 1.4
    begun = facts.begun_well
    known = begun >= 0.5 if begun is not None else short
    if not known or facts.wrecked:
        return None
    limited = f"agent.max_response is {limit:.0f}" if limit is not None else "agent.max_response"
    claim = f"Responses are cut off before they are complete: {percent(cut)} of the turns reached the limit of length "
    claim += f"({limited} tokens). A cut response is no action."
    evidence = {"share": cut} | ({"limit": limit} if limit is not None else {})
    tried = ("a larger agent.max_response" + (f" ({facts.usual_response} is usual for this model)" if short else ""),)
    return suspect("responses_cut", 0.7 + 0.25 * first, claim, evidence, tried)


def context_cut(facts: Facts) -> Finding | None:
    """Conversations that outgrow what the model may read."""
    ended, shortened = facts.share("stop/context_limit"), facts.share("context/shortened")
    ended = ended if facts.steps else facts.of_games("cut/context_limit")
    blind = facts.outcome is None or facts.outcome.kind in ("unsure", "short")
    least = 0.5 if facts.fine or blind else 0.2
    if ended < least and (shortened < max(least, 0.3) or facts.fine):
        return None
    limit = facts.course.amount("agent.max_context")
    said = f"agent.max_context is {limit:.0f} tokens" if limit is not None else "agent.max_context"
    if ended >= shortened:
        claim = (
            f"Games end because the conversation outgrows what the model may read: {percent(ended)} of the episodes "
        )
        claim += f"({said}, and agent.overflow=end ends them)."
    else:
        claim = f"Conversations outgrow what the model may read: in {percent(shortened)} of the turns the oldest "
        claim += "turns were "
        claim += f"left out in front of it ({said})."
    evidence = {"ended": ended, "shortened": shortened}
    remedy = ("a larger agent.max_context", "agent.context=window, which shows the last turns alone")
    return suspect("context_cut", 0.65 + 0.3 * max(ended, 0.7 * shortened), claim, evidence, remedy)


def form(facts: Facts) -> Finding | None:
    """Prompts or answers in another form than the model was taught, by the settings of the run that taught it."""
    said, valid = facts.warned.get("form"), facts.valid
    if (said is None and not facts.other_form) or facts.fine or not len(valid):
        return None
    if valid.start >= KNOWN and not facts.sick:
        return None
    told = listed(facts.other_form) if said is None else str(said.get("text")).split(" was taught: ")[-1]
    claim = f"The form of prompts or answers is not the one that the model was taught: {told}. "
    claim += f"{percent(valid.start)} of the turns at the start were valid actions, {percent(valid.end)} in the end."
    remedy = (
        "the settings of agent that it was taught with",
        "a warm-up with those of this run (isentrope sft)",
    )
    strength = 0.95 if valid.start < KNOWN else 0.6
    return suspect("form", strength, claim, {"valid/start": valid.start, "valid/end": valid.end}, remedy)


def invalid(facts: Facts) -> Finding | None:
    """Answers that were not understood from the start."""
    if form(facts) is not None or observations_cut(facts) is not None:
        return None  # which tells why
    valid = facts.valid
    if not len(valid) or valid.start >= KNOWN or facts.fine or valid.end >= 2 * KNOWN:
        return None
    reason, share = facts.refused_for, facts.share(f"verdict/{facts.refused_for}")
    if reason == "too_long" and (facts.begun_well or 0.0) >= 0.5:
        return None  # the form is known, and cut
    hot = facts.eval_valid is not None and facts.eval_valid >= ELSEWHERE
    strength = (0.9 if valid.start < 0.1 else 0.75) * (0.5 if hot or facts.wrecked else 1.0)
    told = f"{percent(valid.start)} of the turns at the start were valid actions, {percent(valid.end)} in the end"
    why = f"; {percent(share)} were refused as {reason} ({VERDICTS.get(reason, 'for that reason')})" if reason else ""
    evidence = {"valid/start": valid.start, "valid/end": valid.end, "refused": share}
    if reason == "inadmissible":
        claim = f"The task refuses what the policy does: {told}{why}."
        remedy = (WARM_UP, "agent.show_admissible=true, which lists the actions that can be done")
        return suspect("refused", strength - 0.05, claim, evidence, remedy)
    if (taught := _ruined(facts)) is not None:
        told += (
            f"{why}; entropy is {nats(facts.entropy.start)} nats a token from the first step on"
            if len(facts.entropy)
            else why
        )
        claim = (
            f"The start is at fault: the model that training began from says hardly anything valid. {taught} {told}."
        )
        remedy = ("another warm-up, with a smaller sft.lr (isentrope sft)", "an earlier checkpoint as policy.model")
        return suspect("start", max(strength, 0.94), claim, evidence, remedy)
    claim = f"The answers are not in the form that is asked for, so they are no actions: {told}{why}."
    asked = ", ".join(
        f"{key} is {facts.course.setting(key)!r}"
        for key in ("agent.order", "agent.action_tags", "agent.prompt")
        if facts.course.setting(key) is not None
    )
    claim += f" They have tags that nobody asked for: {listed(facts.strange_tags)}." if facts.strange_tags else ""
    claim += f" A model has to know its form beforehand ({asked})." if asked else ""
    remedy = (WARM_UP, "the form that the model was taught (agent.order, agent.action_tags, agent.prompt)")
    return suspect("invalid", strength, claim, evidence, remedy)


def _ruined(facts: Facts) -> str | None:
    """What the warm-up's own numbers say of what it left behind, where that is nothing that can be used."""
    before = facts.course.warmup()
    if before is None:
        return None
    loss, rate = before.curve("sft/loss", "sft"), before.amount("sft.lr")
    solved = [before.curve(f"eval/{split}/success").values[-1:] for split in before.splits]
    best = max((values[0] for values in solved if values), default=None)
    if (best is not None and best > 0.02) or (best is None and (len(loss) < 4 or loss.end < 0.8 * loss.start)):
        return None
    told = f"Its warm-up (sft.lr is {rate:g}) " if rate is not None else "Its warm-up "
    told += f"ended at a loss of {nats(loss.end)} nats" if len(loss) else "was of no use"
    return told + (f" and solved {percent(best)} of the games afterwards:" if best is not None else ":")


def turn_limit(facts: Facts) -> Finding | None:
    """Games that are cut off by a limit of turns that is small."""
    cut, turns = facts.share("stop/turn_limit"), facts.turn_limit
    played = facts.mean("valid_ratio")
    if turns is None or facts.fine or (played is not None and played < 0.3):
        return None
    remedy = ("a larger task.max_turns: isentrope play shows how many turns an errand takes",)
    claim = f"Games are cut off too soon: {percent(cut)} of the episodes ended at the limit of "
    claim += f"{count(round(turns), 'turn')}"
    if (said := facts.warned.get("turn_limit")) is not None and cut >= 0.5:
        claim += f". Before its first step the run warned: {said.get('text')}."
        remedy = (str(said.get("remedy", "")).removeprefix("--set "), *remedy)
        return suspect("turn_limit", 0.95, claim, {"share": cut}, remedy)
    hurried = facts.sick and turns <= SHORT and cut >= HURRIED  # success is seen to stay, so fewer need not end there
    if cut < AT_LIMIT and not hurried:
        return None
    won = [play.turns for play in facts.plays if play.success]
    late = sum(length >= turns - 1 for length in won) / len(won) if len(won) >= 5 and turns >= 4 else None
    strength = 0.9 if turns <= 3 else 0.85 if turns <= SHORT_GAME else 0.6 if turns <= SHORT else 0.4
    strength += 0.25 if late is not None and late >= 0.5 and turns > SHORT_GAME else 0.0
    if late is not None and late >= 0.3:
        claim += f", and {percent(late)} of the games that were won took all of them or all but one"
    evidence = {"share": cut, "turns": turns} | ({"late": late} if late is not None else {})
    return suspect("turn_limit", strength, f"{claim}.", evidence, remedy)


def impossible(facts: Facts) -> Finding | None:
    """Nothing was ever won, though the policy acts."""
    valid = facts.mean("valid_ratio")
    if facts.episodes < 30 or not facts.steps or (valid is not None and valid < 0.3):
        return None
    most = 0.01 * facts.episodes
    if facts.wins > most or facts.games_won > 0:
        return None
    games = sum(sum(facts.course.curve(f"eval/{split}/games").values) for split in facts.course.splits)
    claim = f"Nothing is won: {facts.wins:.0f} of {facts.episodes:,} training episodes"
    claim += f" and 0 of {games:.0f} games of evaluations" if games else ""
    claim += ". Either the task cannot be won as it stands, or it is far beyond this policy; it cannot learn from "
    claim += "what never "
    claim += "happens."
    remedy = ("isentrope check-task, which has an expert play the task", "easier tasks", WARM_UP)
    return suspect("impossible", 0.85, claim, {"episodes": facts.episodes, "won": facts.wins}, remedy)


def hot(facts: Facts) -> Finding | None:
    """A sampling temperature that makes nonsense of what the policy knows."""
    heat = facts.temperature
    if heat is None or heat < HOT:
        return None
    gap = facts.eval_valid - facts.early("valid_ratio") if facts.eval_valid is not None and len(facts.valid) else 0.0
    if (facts.fine and (heat < 1.5 or gap < 0.25)) or (gap < 0.1 and not (facts.sick or facts.erupted)):
        return None
    strength = (
        min(0.95, (0.85 if heat >= 1.5 else 0.7) + max(0.0, gap) / 5) if gap >= 0.1 else 0.6 if heat >= 1.5 else 0.5
    )
    claim = (
        f"The sampling temperature of {heat:g} is too high: it flattens the choice between next tokens (1 leaves it as "
    )
    claim += "the model has it), so that training plays worse than the policy can."
    if gap >= 0.1:
        judged = facts.course.amount("eval.temperature")
        at = f" at temperature {judged:g}" if judged is not None else ""
        claim += f" {percent(facts.early('valid_ratio'))} of its turns were valid actions at the start of training, "
        claim += f"{percent(facts.eval_valid or 0.0)} in the evaluation{at}."
    remedy = (
        "a lower rollout.temperature, of 1"
        if "higher_temperature" not in facts.course.methods
        else "no higher_temperature",
    )
    return suspect("temperature_high", strength, claim, {"temperature": heat, "gap": gap}, remedy)


def hot_evaluation(facts: Facts) -> Finding | None:
    """Evaluations that are sampled so hot that they say nothing of the policy."""
    judged, valid = facts.course.amount("eval.temperature"), facts.eval_valid
    if judged is None or judged < HOT or valid is None or facts.early("valid_ratio") - valid < 0.2:
        return None
    claim = (
        f"Evaluations are sampled too hot (eval.temperature is {judged:g}): {percent(valid)} of their turns were valid "
    )
    claim += f"actions before training, {percent(facts.early('valid_ratio'))} of those of the first training steps."
    return suspect("evaluation_hot", 0.8, claim, {"temperature": judged, "valid": valid}, ("eval.temperature=0.4",))


def cold(facts: Facts) -> Finding | None:
    """A sampling temperature at which the episodes of a group are all the same."""
    heat = facts.temperature
    if heat is None or heat > COOL or (facts.equal < 0.5 and (facts.fine or not facts.sick)):
        return None
    if facts.fine and heat > FROZEN:
        return None  # it learnt all the same
    claim = f"The sampling temperature of {heat:g} is too low: the policy nearly always takes its likeliest token"
    claim += f", and in {percent(facts.equal)} of the groups all did equally well"
    claim += ", which teaches nothing."
    remedy = ("a higher rollout.temperature, of 1",)
    return suspect(
        "temperature_low", 0.6 + 0.4 * min(0.9, facts.equal), claim, {"temperature": heat, "equal": facts.equal}, remedy
    )
