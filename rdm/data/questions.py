"""The sources of a split as they are decoded in evaluation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EvaluationQuestions:
    """Sources to decode and the references to compare the outputs with."""

    rows: list[list[int]]  # sources as ids, without special symbols
    sources: list[str]  # the same sources as text
    references: list[list[str]]  # one or more lists of references, each aligned with the sources
    cut: list[bool]  # whether a source was longer than the model allows and lost its end

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int | None) -> "EvaluationQuestions":
        """Return the first ``count`` questions; None means all."""
        references = [side[:count] for side in self.references]
        return EvaluationQuestions(self.rows[:count], self.sources[:count], references, self.cut[:count])
