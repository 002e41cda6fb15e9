"""Whether the answer to several statements in one packet is whole, in the protocol of MySQL."""

from __future__ import annotations

#: What dblock's packets have between two statements.
THEN = b"-- then"

_OK, _EOF, _ERROR = 0x00, 0xFE, 0xFF  # the first byte of a packet that ends an answer
_MORE = 0x08  # in the server's status: another statement's answer follows
# The length of an integer after its first byte, where that is not the integer itself.
_LONGER = {0xFC: 2, 0xFD: 3, 0xFE: 8}


def is_whole(answer: bytes) -> bool:
    """Whether the bytes that have arrived end with the last statement's answer, or with an error,
    after which the server executes none of the rest."""
    last = b""
    while answer:
        size = int.from_bytes(answer[:3], "little")
        last, answer = answer[4 : 4 + size], answer[4 + size :]
        if not last or len(last) < size:
            return False
    if not last or last[0] not in (_OK, _EOF, _ERROR):
        return False
    return last[0] == _ERROR or not _status(last) & _MORE


def _status(packet: bytes) -> int:
    """The low byte of the status: after the warnings' number, or after two integers."""
    if packet[0] == _EOF:
        return packet[3]
    at = 1
    for _ in range(2):  # the rows that were changed, and the last number that was inserted
        at += 1 + _LONGER.get(packet[at], 0)
    return packet[at]
