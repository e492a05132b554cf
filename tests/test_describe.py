"""Components record the arguments of their constructors."""

import json
from abc import ABC
from dataclasses import dataclass
from enum import Enum
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
    assert Leaf(3).describe() == {"class": "tests.test_describe.Leaf", "size": 3, "rate": 0.5}
    assert Inherits(3, rate=1.0).describe() == {"class": "tests.test_describe.Inherits", "size": 3, "rate": 1.0}
    assert Part().describe() == {"class": "tests.test_describe.Part"}


def test_the_outermost_constructor_counts():
    assert Extends("word", rate=2.0).describe() == {
        "class": "tests.test_describe.Extends",
        "extra": "word",
        "rate": 2.0,
    }


def test_components_inside_are_described_too():
    inner = {"class": "tests.test_describe.Leaf", "size": 1, "rate": 0.5}
    network = Network(Leaf(1), torch.ones(2), [4, 5])
    described = network.describe()
    assert described.pop("weights").startswith("Tensor ")
    assert described == {"class": "tests.test_describe.Network", "part": inner, "sizes": [4, 5]}
    assert Record(part=Leaf(1)).describe() == {"class": "tests.test_describe.Record", "place": "here", "part": inner}


def test_a_partial_is_described_by_its_function_and_arguments():
    class Holder(Described):
        def __init__(self, build: Any) -> None:
            pass

    assert Holder(partial(torch.optim.SGD, lr=0.1)).describe()["build"] == {"class": "SGD", "lr": 0.1}


def test_a_record_holds_no_module_and_changes_no_state_dict():
    outer = Network(Leaf(1), torch.ones(2), [])
    assert list(outer.state_dict()) == ["layer.weight", "layer.bias"]
    assert all(not isinstance(value, nn.Module) for value in vars(outer)["_constructor_arguments"].values())


def test_values_that_differ_are_recorded_differently() -> None:
    class Holder(Described):
        def __init__(self, value: Any) -> None:
            pass

    class Choice(Enum):
        FIRST = 1
        SECOND = 2

    pairs: list[tuple[Any, Any]] = [
        (Choice.FIRST, Choice.SECOND),
        (torch.float16, torch.float32),
        ({1, 2}, {1, 3}),
        (torch.ones(2), torch.zeros(2)),
        (partial(max, 1), partial(max, 2)),
    ]
    for first, second in pairs:
        descriptions = [json.dumps(Holder(value).describe()) for value in (first, second)]
        assert descriptions[0] != descriptions[1], first


def test_an_integer_for_a_float_is_the_same_setting() -> None:
    assert json.dumps(Leaf(3, rate=1).describe()) == json.dumps(Leaf(3, rate=1.0).describe())
    assert Leaf(3, rate=1).describe() != Leaf(3, rate=2).describe()
