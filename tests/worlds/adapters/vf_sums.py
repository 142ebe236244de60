"""Environments of verifiers for tests: sums, in one turn or in several."""

from __future__ import annotations

from typing import Any


def load_environment(
    rows: int = 30, turns: int = 1, evaluation: int = 0, group: bool = False, fails: bool = False
) -> Any:
    import verifiers as vf
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()

    def table(first: int, count: int) -> Any:
        return Dataset.from_list(
            [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(first, first + count)]
        )

    async def right(completion: Any, answer: str) -> float:
        said = [message for message in completion if message["role"] == "assistant"][-1]["content"]
        return float(said.strip() == answer)

    def short(completion: Any) -> float:
        return 0.5

    def best_of_all(completions: Any, **kwargs: Any) -> list[float]:
        return [1.0] * len(completions)

    class Sums(vf.MultiTurnEnv):
        async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
            if fails:
                raise vf.Error("the environment's own fault")
            said = messages[-1]["content"]
            if said == state["answer"]:
                state["final_env_response"] = [vf.UserMessage(content="Right.")]
                return state["final_env_response"]
            return [vf.UserMessage(content=f"{said[:20]} is wrong. Again?")]

    rubric = vf.Rubric(funcs=[best_of_all] if group else [right, short], weights=[1.0] if group else [1.0, 0.5])
    shared = {
        "dataset": table(0, rows),
        "eval_dataset": table(1000, evaluation) if evaluation else None,
        "rubric": rubric,
    }
    if turns == 1:
        return vf.SingleTurnEnv(system_prompt="Answer with a number alone.", **shared)
    return Sums(max_turns=turns, **shared)
