"""A string of bits as bytes: written and read field by field, the highest bit of a field first."""

from dragonrt.errors import CodecError


class BitWriter:
    """Writes fields of given widths, one after the other, after the bytes of `header`."""

    def __init__(self, header: bytes = b"") -> None:
        self._whole = bytearray(header)
        self._tail = 0  # the bits that do not fill a byte yet
        self._tail_bits = 0

    @property
    def bits(self) -> int:
        """The number of written bits."""
        return 8 * len(self._whole) + self._tail_bits

    def write(self, value: int, bits: int) -> None:
        """Append `value` in `bits` bits. Raises ValueError for a value that does not fit."""
        if value < 0 or value >> bits:
            raise ValueError(f"{value} does not fit into {bits} bits")
        tail = self._tail << bits | value
        count, rest = divmod(self._tail_bits + bits, 8)
        self._whole += (tail >> rest).to_bytes(count, "big")
        self._tail, self._tail_bits = tail & ((1 << rest) - 1), rest

    def write_bytes(self, data: bytes) -> None:
        """Append whole bytes, at the end of a byte. Raises ValueError in the middle of one."""
        if self._tail_bits:
            raise ValueError("whole bytes must begin where a byte begins")
        self._whole += data

    def to_bytes(self) -> bytes:
        """Return what has been written, with zero bits up to a whole byte."""
        if not self._tail_bits:
            return bytes(self._whole)
        return bytes(self._whole) + bytes((self._tail << (8 - self._tail_bits),))


class BitReader:
    """Reads the fields of a BitWriter after its header, from bytes of the other side."""

    def __init__(self, data: bytes, header: int = 0) -> None:
        """`header` is the number of bytes that are not read."""
        self._data = data
        self._position = 8 * header

    @property
    def left(self) -> int:
        """The number of bits left to read."""
        return 8 * len(self._data) - self._position

    def read(self, bits: int) -> int:
        """Return the next field, of `bits` bits. Raises CodecError if fewer are left."""
        if bits > self.left:
            raise CodecError(f"payload ends {bits - self.left} bits too early; discard it")
        end = self._position + bits
        covering = int.from_bytes(self._data[self._position // 8 : -(-end // 8)], "big")
        self._position = end
        return covering >> (-end % 8) & ((1 << bits) - 1)

    def rest(self) -> memoryview:
        """Return the unread bytes; call `skip` with the number of those that were used.

        Raises ValueError in the middle of a byte.
        """
        if self._position % 8:
            raise ValueError("whole bytes must begin where a byte begins")
        return memoryview(self._data)[self._position // 8 :]

    def skip(self, count: int) -> None:
        """Advance by `count` bytes, which must exist."""
        self._position += 8 * count

    def expect(self, bits: int) -> None:
        """Raise CodecError if more than `bits` bits and the padding of the last byte are left."""
        if self.left > bits + 7:
            raise CodecError("payload has bits after its last field; discard it")

    def finish(self) -> None:
        """Raise CodecError unless only the zero padding of the last byte is left."""
        self.expect(0)
        if self.read(self.left):
            raise CodecError("payload has bits after its last field; discard it")
