"""Takes names from the defining module, as launch scripts and trainers do."""

from stand_in.seams import evaluate
from stand_in.seams import train as run_step


def epoch() -> list[object]:
    return [run_step(0), evaluate(0)]
