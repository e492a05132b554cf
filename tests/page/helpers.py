"""Trajectories for tests of the page."""

from rdm.decoding.trace import Step, Token, TokenState
from rdm.page.trajectory import Candidate, Example, Trajectory

EVIL = "</script><script>window.hacked = 1</script>"
EVIL_ATTRIBUTE = "\"'><img src=x onerror='window.hacked = 2'>"

NOISE, NEW, KEPT, BACK = TokenState.NOISE, TokenState.NEW, TokenState.KEPT, TokenState.BACK
LONG = [[NOISE] * 4, [NEW, NOISE, NEW, NOISE], [KEPT, NEW, BACK, NOISE], [KEPT, KEPT, NEW, NEW]]
SHORT = [[NOISE] * 3, [NEW, NEW, NEW]]


def trajectory(strategy: str, states: list[list[TokenState]], word: str = "word") -> Trajectory:
    """A trajectory with these states; tokens are ``<mask>`` if noisy and ``word`` otherwise."""
    steps = []
    for iteration, row in enumerate(states):
        tokens = [
            Token("<mask>" if state in (NOISE, BACK) else word, state, None if iteration == 0 else 0.75, position)
            for position, state in enumerate(row)
        ]
        steps.append(Step(iteration, tokens))
    candidates = [Candidate(4, -0.25, f"{word} a", True), Candidate(3, -0.5, f"{word} b", False)]
    return Trajectory("model, step 7", strategy, "legend", {"option": word}, steps, f"{word} a", candidates)


EXAMPLES = [
    Example("a source", ["a reference", "another"], [trajectory("long", LONG), trajectory("short", SHORT)]),
    Example(EVIL, [EVIL_ATTRIBUTE], [trajectory(EVIL, LONG, EVIL), trajectory("attribute", SHORT, EVIL_ATTRIBUTE)]),
]
