"""The animated picture of a decoding."""

import re
import xml.etree.ElementTree as ElementTree

from rdm.decoding.trace import Step, Token, TokenState
from rdm.page.animation import animate, appearances, keyframes, place_tokens
from rdm.page.trajectory import Trajectory

NOISE, NEW, KEPT, BACK = TokenState.NOISE, TokenState.NEW, TokenState.KEPT, TokenState.BACK


def trajectory() -> Trajectory:
    """Two tokens in three iterations: the second one is sent back to noise once."""
    rows = [
        [("<mask>", NOISE, None), ("<mask>", NOISE, None)],
        [("▁a", NEW, 0.5), ("▁cat", NEW, 0.9)],
        [("▁a", KEPT, 0.6), ("<mask>", BACK, 0.2)],
        [("▁a", KEPT, 0.8), ("▁<dog>", NEW, 0.7)],
    ]
    steps = [
        Step(index, [Token(text, state, sure, position) for position, (text, state, sure) in enumerate(row, 1)])
        for index, row in enumerate(rows)
    ]
    return Trajectory("model", "rdm, 3 iterations", "", {}, steps, "a <dog>", [])


def test_equal_iterations_are_one_appearance() -> None:
    looks = appearances(trajectory().steps)
    assert [(look.text, look.state, look.first, look.end) for look in looks[1]] == [
        ("<mask>", NOISE, 0, 1),
        ("▁a", NEW, 1, 2),
        ("▁a", KEPT, 2, 4),
    ]
    assert looks[1][2].confidence == (0.6 + 0.8) / 2
    assert [look.state for look in looks[2]] == [NOISE, NEW, BACK, NEW]


def test_every_iteration_shows_its_tokens_and_the_last_one_stays() -> None:
    root = ElementTree.fromstring(animate(trajectory(), 'eine "Katze" & mehr'))
    groups = list(root.iter("{http://www.w3.org/2000/svg}g"))
    names = [re.fullmatch(r"animation-name:f(\d+)-(\d+)", each.attrib["style"]) for each in groups]
    style = next(root.iter("{http://www.w3.org/2000/svg}style")).text or ""
    spans = [(int(name[1]), int(name[2])) for name in names if name]
    assert len(spans) == len(groups) == 3 + 4 + 4  # tokens of both positions and one counter per iteration
    for iteration in range(4):
        assert sum(first <= iteration < end for first, end in spans) == 3
    for first, end in spans:
        assert f"@keyframes f{first}-{end}{{" in style
    last = [group for group in groups if group.attrib["class"] == "frame last"]
    texts = [text.text for group in last for text in group.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["a", "<dog>", "iteration 3 of 3"]


def test_legend_has_the_states_that_occur() -> None:
    picture = animate(trajectory(), "source")
    for name in ("noise", "newly denoised", "kept", "sent back to noise"):
        assert f">{name}</text>" in picture
    assert ">deleted</text>" not in picture


def test_key_frames_end_before_the_next_begin() -> None:
    assert keyframes(0, 1, 4, 8, fade=0.5) == "@keyframes f0-1{0.00%,6.25%{opacity:1}12.50%,100%{opacity:0}}"
    assert keyframes(2, 4, 4, 8, fade=0.5) == "@keyframes f2-4{0%,18.75%{opacity:0}25.00%,100.00%{opacity:1}}"


def test_tokens_do_not_overlap_and_stay_in_the_picture() -> None:
    places, lines = place_tokens({position: 3 + position % 9 for position in range(40)})
    assert lines > 1
    for position in range(39):
        (left, top, width), (next_left, next_top, _) = places[position], places[position + 1]
        assert left + width < 860
        assert next_top > top or next_left > left + width
