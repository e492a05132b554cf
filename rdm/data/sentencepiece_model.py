"""SentencePiece models, converted to a tokenizer of the ``tokenizers`` library without the ``sentencepiece`` package.

A ``.model`` file is a protocol buffer with a list of pieces, their scores, and the rules that normalise text. Field
numbers are those of ``sentencepiece_model.proto``.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
OTHER_MODELS = {3: "word", 4: "char"}


@dataclass(frozen=True)
class Piece:
    """A piece of text with its log-probability (unigram) or negated rank (BPE)."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    """The parts of a model file that decide how text is encoded."""

    pieces: list[Piece]
    model_type: int
    byte_fallback: bool
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool

    @classmethod
    def parse(cls, content: bytes) -> "SentencePieceModel":
        """Read a model file; a :class:`ValueError` means that it is something else."""
        pieces, trainer, normalizer = [], {}, {}
        for number, value in _fields(content):
            if number == 1:
                piece = dict(_fields(_message(value)))
                score = struct.unpack("<f", _message(piece.get(2, bytes(4))))[0]
                pieces.append(Piece(_message(piece[1]).decode(), score, int(piece.get(3, NORMAL))))
            elif number == 2:
                trainer = dict(_fields(_message(value)))
            elif number == 3:
                normalizer = dict(_fields(_message(value)))
        if [piece.kind for piece in pieces].count(UNKNOWN) != 1:
            raise ValueError("a model has one piece for unknown text")
        return cls(
            pieces,
            model_type=int(trainer.get(3, UNIGRAM)),
            byte_fallback=bool(trainer.get(35, False)),
            charsmap=_message(normalizer.get(2, b"")),
            add_dummy_prefix=bool(normalizer.get(3, True)),
            remove_extra_whitespaces=bool(normalizer.get(4, True)),
        )

    def convert(self, unknown: str, excluded: frozenset[str]) -> Backend:
        """Return the tokenizer, with ``unknown`` as id 0 and without control symbols and ``excluded`` pieces."""
        kept = [piece for piece in self.pieces if piece.kind in (NORMAL, USER_DEFINED, BYTE)]
        kept = [Piece(unknown, 0.0, UNKNOWN), *(piece for piece in kept if piece.text not in excluded)]
        backend = Backend(self._model(kept))
        backend.normalizer = normalizers.Sequence(list(self._normalizers()))
        # Pieces that include several words can be found only if the text is not split at spaces.
        split = all(SPACE not in piece.text[1:] for piece in kept)
        scheme = "always" if self.add_dummy_prefix else "never"
        backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, scheme, split)
        steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        backend.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if self.add_dummy_prefix else [])])
        symbols = [AddedToken(piece.text, normalized=False) for piece in kept if piece.kind == USER_DEFINED]
        backend.add_tokens(symbols)
        return backend

    def _model(self, pieces: list[Piece]) -> models.Model:
        if self.model_type == UNIGRAM:
            return models.Unigram([(piece.text, piece.score) for piece in pieces], 0, self.byte_fallback)
        ids = {piece.text: index for index, piece in enumerate(pieces)}
        parts = {piece.text for piece in pieces if piece.kind == NORMAL}
        merges = [
            (piece.text[:cut], piece.text[cut:])
            for piece in sorted(pieces, key=lambda piece: -piece.score)
            if piece.text in parts
            for cut in range(1, len(piece.text))
            if piece.text[:cut] in parts and piece.text[cut:] in parts
        ]
        return models.BPE(ids, merges, unk_token=pieces[0].text, fuse_unk=True, byte_fallback=self.byte_fallback)

    def _normalizers(self) -> Iterator[normalizers.Normalizer]:
        if self.charsmap:
            yield normalizers.Precompiled(self.charsmap)
        if self.remove_extra_whitespaces:
            yield normalizers.Strip()
            yield normalizers.Replace(Regex(" {2,}"), " ")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field: an integer, or the bytes of a string, float or message."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, position = _varint(message, position)
            yield number, value
            continue
        if wire_type == 2:
            size, position = _varint(message, position)
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if position + size > len(message):
            raise ValueError("the message is cut off")
        yield number, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return an integer of 7 bits per byte, lowest first, and the position after it."""
    value = 0
    for index, byte in enumerate(message[position : position + 10]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, position + index + 1
    raise ValueError("a number is cut off")


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number in place of a message")
    return value
