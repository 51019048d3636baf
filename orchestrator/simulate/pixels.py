"""A grid of numbers as a PNG of one pixel each, written by hand, so that a page needs no picture library.

Comes in: a map of nodes over time. Goes out: the bytes of a PNG with a palette. Called by: page.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from orchestrator.simulate.pictures import AWAY

LIGHT, DARK, GONE = (0xEA, 0xF1, 0xF8), (0x0B, 0x3C, 0x6F), (0xD9, 0x8C, 0x7A)
SHADES = 64
SIGNATURE = b"\x89PNG\r\n\x1a\n"
INDEXED, DEPTH = 3, 8  # the PNG's colour type with a palette, and bits of an index


def shade(share: float) -> tuple[int, int, int]:
    """The colour of a load between 0 and 1."""
    red, green, blue = (round(low + (high - low) * share) for low, high in zip(LIGHT, DARK, strict=True))
    return red, green, blue


def png(grid: NDArray[np.int16]) -> bytes:
    """The picture of per-mille values; AWAY has a colour of its own."""
    height, width = grid.shape
    index = np.where(
        grid == AWAY, SHADES, np.clip(grid.astype(np.int32) * (SHADES - 1) // 1000, 0, SHADES - 1)
    )
    rows = b"".join(b"\x00" + row.astype(np.uint8).tobytes() for row in index)
    colours = [shade(number / (SHADES - 1)) for number in range(SHADES)] + [GONE]
    palette = bytes(part for colour in colours for part in colour)
    head = struct.pack(">IIBBBBB", width, height, DEPTH, INDEXED, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
