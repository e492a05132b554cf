"""Components record the arguments of their constructors."""

from abc import ABC
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rdm.describe import Described


class Part(Described, ABC):
    pass


class Leaf(Part):
    def __init__(self, size: int, rate: float = 0.5) -> None:
        self.other_name = size + 1


class Inherits(Leaf):
    pass


class Extends(Leaf):
    def __init__(self, extra: str, **options: Any) -> None:
        super().__init__(1, **options)


class Network(Described, nn.Module):
    def __init__(self, part: Part, weights: Tensor, sizes: list[int]) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)


@dataclass(frozen=True)
class Record(Described):
    place: Path = Path("here")
    part: Part | None = None


def test_arguments_are_recorded_with_their_defaults_under_the_names_a_user_types():
    assert Leaf(3).describe() == {"class": "Leaf", "size": 3, "rate": 0.5}
    assert Inherits(3, rate=1.0).describe() == {"class": "Inherits", "size": 3, "rate": 1.0}
    assert Part().describe() == {"class": "Part"}


def test_the_outermost_constructor_counts():
    assert Extends("word", rate=2.0).describe() == {"class": "Extends", "extra": "word", "rate": 2.0}


def test_components_inside_are_described_too():
    inner = {"class": "Leaf", "size": 1, "rate": 0.5}
    network = Network(Leaf(1), torch.ones(2), [4, 5])
    assert network.describe() == {"class": "Network", "part": inner, "weights": "Tensor", "sizes": [4, 5]}
    assert Record(part=Leaf(1)).describe() == {"class": "Record", "place": "here", "part": inner}


def test_a_partial_is_described_by_its_function_and_arguments():
    class Holder(Described):
        def __init__(self, build: Any) -> None:
            pass

    assert Holder(partial(torch.optim.SGD, lr=0.1)).describe()["build"] == {"class": "SGD", "lr": 0.1}


def test_a_record_holds_no_module_and_changes_no_state_dict():
    outer = Network(Leaf(1), torch.ones(2), [])
    assert list(outer.state_dict()) == ["layer.weight", "layer.bias"]
    assert all(not isinstance(value, nn.Module) for value in vars(outer)["_constructor_arguments"].values())
