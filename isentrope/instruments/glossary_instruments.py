"""The glossary's entries of the instruments, by where their numbers come from."""

from __future__ import annotations

from isentrope.instruments.glossary_entry import Entry

INSTRUMENTS: dict[str, tuple[Entry, ...]] = {
    "the instruments": (
        Entry(
            "entropy/turns/{first}", "nats", "Mean response entropy from turn {first} of an episode up to its double."
        ),
        Entry("entropy/kind/{kind}", "nats", "Mean token entropy of the episodes of the task type {kind}."),
        Entry("entropy/outcome/solved", "nats", "Mean token entropy of the episodes that solved their task."),
        Entry("entropy/outcome/failed", "nats", "Mean token entropy of the episodes in which the policy failed."),
        Entry("surprisal/token", "nats", "Minus the log-probability of a sampled token, mean over all tokens."),
        Entry(
            "surprisal/relative", "nats", "Surprisal of a token minus the entropy it was drawn at, mean over tokens."
        ),
        Entry("likelihood/valid", "nats", "Log-probability of a token, mean over the tokens of valid responses."),
        Entry("likelihood/solved", "nats", "Log-probability of a token, mean over the tokens of solved episodes."),
        Entry(
            "likelihood/failed", "nats", "Log-probability of a token, mean over episodes in which the policy failed."
        ),
        Entry(
            "temperature/mean", "temperature", "Mean temperature that the response tokens were sampled at; 0: greedy."
        ),
        Entry(
            "temperature/not_one",
            "share",
            "Share of the response tokens whose entropy and log-prob were measured at another temperature than 1.",
        ),
        Entry("degeneracy/duplication", "share", "Share of the sentences that stand more than once in their response."),
        Entry("degeneracy/loops", "share", "Share of the responses in which a stretch of tokens is repeated in a row."),
        Entry("degeneracy/hallucinated", "share", "Share of the actions that were refused and name what is not there."),
        Entry("degeneracy/repeated_actions", "share", "Share of the later turns with the action of the turn before."),
        Entry("degeneracy/judge", "0 to 10", "How degenerate another model finds the episodes: 0 is clean."),
    ),
    "the course of the run": (
        Entry(
            "drift/predicted",
            "nats, unscaled",
            "Forecast of the next change of entropy: mean of A · (S - H), tokens weighed as the update weighed them.",
        ),
        Entry("drift/measured", "nats", "Token entropy of this step minus that of the step before."),
        Entry("drift/agreement", "share", "Share of the drifts so far that had the sign of the forecast before."),
        Entry("drift/correlation", "correlation", "Correlation of forecast and measured drift over the steps so far."),
        Entry("degeneracy/length_drift", "ratio", "Tokens of a response over their mean in the first five steps."),
        Entry("phase", "phase", "Phase of the entropy curve: 0 descent, 1 eruption, 2 subsidence."),
        Entry("alarm/{name}", "alarm", "1 at a step at which the alarm {name} was given."),
    ),
    "the probes": (
        Entry("probe/delta_h", "nats", "How much thinking lowers the entropy of the same action, at the same states."),
        Entry("probe/action_entropy", "nats", "Mean token entropy of the probed actions, after their thoughts."),
        Entry(
            "probe/action_entropy_without", "nats", "Mean token entropy of the probed actions, the thoughts left out."
        ),
        Entry("probe/states", "states", "States on which thinking was probed: the same ones every time."),
        Entry("probe/similarity/solved", "cosine", "Similarity of the hidden states of two solved episodes, mean."),
        Entry("probe/similarity/failed", "cosine", "Similarity of the hidden states of two failed episodes, mean."),
        Entry(
            "probe/similarity/between", "cosine", "Similarity of the hidden states of a solved and a failed episode."
        ),
        Entry("probe/accuracy", "share", "Share of held-out episodes whose outcome a linear probe tells right."),
        Entry("probe/majority", "share", "Share of the more frequent outcome: what a probe has to beat."),
        Entry(
            "probe/interference/sum",
            "squared norm",
            "Σ_j A_j c_j of a group, mean over groups: below 0, learning lowers the likelihood of its episodes.",
        ),
        Entry(
            "probe/interference/positive_per_token",
            "squared norm",
            "c_j with gradients taken a token, over episodes with positive advantage.",
        ),
        Entry(
            "probe/interference/negative_per_token",
            "squared norm",
            "c_j with gradients taken a token, over episodes with negative advantage.",
        ),
        Entry(
            "probe/interference/{sign}",
            "squared norm",
            "c_j: mean product of an episode's gradient with those of its group, over those with {sign} advantage.",
        ),
        Entry("probe/seconds", "seconds", "What the probes of the step took."),
    ),
}
