"""Damage to bytes: the small things that go wrong, and the big ones."""

import random

EDGES = (
    b"\x00",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x08",
    b"\x7f\xff\xff\xff",
    bytes(8),
)


def mutated(data: bytes, dice: random.Random, most: int = 4) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, most)):
        _mutate(changed, dice)
    return bytes(changed)


def _mutate(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(data) + 1)
    kind = dice.randrange(8)
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << dice.randrange(8)
    elif kind == 1 and data:
        data[at % len(data)] = dice.randrange(256)
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        data[at:at] = dice.choice(EDGES)
    elif kind == 4:
        edge = dice.choice(EDGES)
        data[at : at + len(edge)] = edge
    elif kind == 5:
        del data[at : at + dice.randint(1, 16)]
    elif kind == 6:
        data[at:at] = data[at : at + dice.randint(1, 64)]
    else:
        data[at:at] = dice.randbytes(dice.randint(1, 32))
