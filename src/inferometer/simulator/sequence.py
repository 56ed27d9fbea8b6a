"""A request as the engine sees it: a prompt, an answer that is known beforehand, and how far it has come."""

from dataclasses import dataclass, field
from typing import Any

from inferometer.simulator.blocks import Run
from inferometer.simulator.tokens import Tokens


@dataclass(slots=True, eq=False)
class Sequence:
    """`spans` are the steps, as [first, end), that gave it one token each."""

    prompt: Tokens
    answer: tuple[str, ...]  # all it will say; its length decides when it is finished
    waiter: Any = None  # whoever wants its tokens
    made: int = 0  # tokens generated so far
    computed: int = 0  # tokens whose keys and values are in the cache
    cached: int | None = None  # prompt tokens found in the cache when first admitted
    arrived_at: int = 0  # when the engine got it; set by whoever knows the time
    admitted_at: int | None = None  # when its first chunk began; set by whoever knows the time
    preemptions: int = 0
    aborted: bool = False
    spans: list[list[int]] = field(default_factory=list)
    held: Run | None = None  # the last run of blocks that it holds by content
    published: int = 0  # leading blocks held by content; those beyond are private
    room: int = 0  # tokens that its blocks can hold
    settled: int = 0  # the step up to which these numbers are right, while it decodes
    length: int = field(init=False)  # of the prompt and what is made
    left: int = field(init=False)  # tokens still to make

    def __post_init__(self) -> None:
        self.length = len(self.prompt)
        self.left = len(self.answer)

    def give(self, first_step: int, end: int) -> None:
        """The steps from `first_step` to `end` gave it a token each."""
        tokens = end - first_step
        self.made += tokens
        self.length += tokens
        self.left -= tokens
        if self.spans and self.spans[-1][1] == first_step:
            self.spans[-1][1] = end
        else:
            self.spans.append([first_step, end])

    def catch_up(self, step: int, block_size: int) -> None:
        """It has decoded in every step since it was settled."""
        if step > self.settled:
            self.computed += step - self.settled
            self.room = -(-self.computed // block_size) * block_size
            self.give(self.settled, step)
            self.settled = step

    def tokens(self, start: int, end: int) -> Tokens:
        """Those of the prompt and, behind it, of the answer."""
        prompt = len(self.prompt)
        if end <= prompt:
            return self.prompt[start:end]
        return self.prompt[start:] + self.answer[max(0, start - prompt) : end - prompt]
