"""What is hooked: two functions, and methods of each kind, owned by a class and inherited by others."""


def train(step: int, *, scale: float = 1.0) -> list[object]:
    """Train one step."""
    if step < 0:
        raise ValueError("no such step")
    return ["trained", step, scale]


def evaluate(step: int) -> list[object]:
    return ["evaluated", step]


class Optimizer:
    def __init__(self, rate: float = 0.1) -> None:
        self.rate = rate

    def step(self, count: int) -> list[object]:
        return [type(self).__name__, "step", count, self.rate]

    @staticmethod
    def clip(norm: float) -> list[object]:
        return ["clip", norm]

    @classmethod
    def build(cls, rate: float) -> list[object]:
        return [cls.__name__, "build", rate]


class Adam(Optimizer):
    """Inherits everything."""


class FusedAdam(Adam):
    """Inherits from the class that is hooked."""
