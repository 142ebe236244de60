"""Reads columns of a Parquet file that somebody else may have made.

A kilobyte of Parquet may hold gigabytes: equal values take no space, and a text stands in a file once, however many
rows have it. The footer may say that there is one value where a page has a billion. So before a column is read the
headers of its pages are, and what they come to has to be within the limits (core/limits.py). Texts are read as numbers
of a dictionary; they are put in full only if there is room for that.

    with Parquet(path.open("rb")) as file:
        file.names, file.rows, file.label(b"isentrope.episodes")
        file.check(["turn", "goal"])
        file.column("goal")
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple, Self, cast

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

from isentrope.core.limits import DECODED_BYTES, EPISODE_BYTES, EPISODE_ROWS, EPISODE_TEXTS, MIB, PAGES

pa: Any = pyarrow  # it comes without type information
pc: Any = pyarrow.compute
pq: Any = pyarrow.parquet

_FOOTER_BYTES = 4 * MIB  # ours has 10 kB
_HEADER_BYTES = 1024  # of a page; ours has 30
_LONG_HEADER_BYTES = 65_536  # with the least and the greatest text of a page, which other writers put there
_COLUMNS, _ROW_GROUPS = 200, 1000
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # kinds of pages
_ENCODINGS = (0, 2, 3, 8)  # plain, dictionary, runs: with the others a few bytes may stand for text of any length
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_PARSED_ENTRY = 16  # bytes that Arrow takes for an entry of a dictionary before it has read it


class Parquet:
    """An open file. ValueError for what is beyond the limits; Arrow's own errors for what is damaged."""

    def __init__(self, source: BinaryIO, most_rows: int = EPISODE_ROWS) -> None:
        self._source = source
        self._size = source.seek(0, 2)
        if self._size > EPISODE_BYTES:
            raise ValueError(f"it has {self._size:,} bytes; more than {EPISODE_BYTES:,} are not read")
        self._check_footer()
        source.seek(0)
        plain = pq.ParquetFile(pa.PythonFile(source, mode="r"))
        self.schema: Any = plain.schema_arrow
        self._about: Any = plain.metadata
        self.rows = int(self._about.num_rows)
        if self._about.num_columns > _COLUMNS or self._about.num_row_groups > _ROW_GROUPS:
            raise ValueError(f"it has more than {_COLUMNS} columns or {_ROW_GROUPS:,} groups of rows")
        if self.rows > most_rows:
            raise ValueError(f"it has {self.rows:,} rows; more than {most_rows:,} are not read")
        leaves = [self._about.schema.column(n) for n in range(self._about.num_columns)]
        self._leaves = [str(leaf.path) for leaf in leaves]
        texts = [str(leaf.path) for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        self._file: Any = pq.ParquetFile(
            pa.PythonFile(source, mode="r"),
            metadata=self._about,
            read_dictionary=texts,
            page_checksum_verification=True,
        )
        self._room = DECODED_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._source.close()

    @property
    def names(self) -> list[str]:
        return self.schema.names

    def label(self, key: bytes, unknown: bytes = b"") -> str:
        """An entry of the file's notes."""
        notes: dict[bytes, bytes] = self.schema.metadata or {}
        return notes.get(key, unknown).decode(errors="replace")

    def check(self, names: Sequence[str]) -> None:
        """Refuse the columns if they take more memory than there is for a file."""
        pages = 0
        for number, leaf in enumerate(self._leaves):
            if leaf.split(".")[0] in names:
                for group in range(self._about.num_row_groups):
                    pages += self._check_chunk(self._about.row_group(group).column(number), PAGES - pages)

    def column(self, name: str) -> Any:
        """A column that was checked, with its texts in full."""
        column = self._file.read(columns=[name], use_threads=False).column(name)
        kind = self.schema.field(name).type
        if column.type == kind:
            return column
        for texts in (texts for chunk in column.chunks for texts in _texts_of(chunk)):
            lengths = pc.take(pc.binary_length(texts.dictionary), texts.indices)
            self._use(int(pc.sum(lengths).as_py() or 0), name)
        return column.cast(kind)

    def _use(self, size: int, name: str) -> None:
        self._room -= size
        if size < 0 or self._room < 0:
            raise ValueError(f"its columns, up to {name}, take more than {DECODED_BYTES:,} bytes of memory")

    def _check_footer(self) -> None:
        self._source.seek(max(0, self._size - 8))
        end = self._source.read(8)
        if self._size < 12 or end[4:] != b"PAR1":
            raise ValueError("it is no Parquet file, or only a part of one")
        length = struct.unpack("<I", end[:4])[0]
        if length > min(_FOOTER_BYTES, self._size):
            raise ValueError(f"its footer has {length:,} bytes; more than {_FOOTER_BYTES:,} are not read")

    def _check_chunk(self, chunk: Any, most: int) -> int:
        """How many pages a column has in a group of rows."""
        name, width, nested = chunk.path_in_schema, _WIDTHS.get(chunk.physical_type), "." in chunk.path_in_schema
        if width is None:
            raise ValueError(f"its column {name} is of the kind {chunk.physical_type}, which no run writes")
        starts = [chunk.data_page_offset, *([chunk.dictionary_page_offset] if chunk.has_dictionary_page else [])]
        starts = [start for start in starts if start != 0]  # 0: there is no page, as there are no rows
        at, pages, values = min(starts, default=0), 0, 0
        end = at + chunk.total_compressed_size
        if not 0 <= at <= end <= self._size:
            raise ValueError(f"its column {name} lies outside of the file")
        while at < end:
            page = self._page(at)
            pages += 1
            if pages > most:
                raise ValueError(f"it has more than {PAGES:,} pages")
            if page.kind != _DICTIONARY and page.encoding not in _ENCODINGS:
                raise ValueError(f"its column {name} is written in a way (encoding {page.encoding}) that no run uses")
            if min(page.header, page.packed, page.unpacked, page.values) < 0:
                raise ValueError(f"its column {name} has a page of negative size")
            each = _PARSED_ENTRY if page.kind == _DICTIONARY else width
            self._use(page.unpacked + page.values * each, name)
            values += page.values if page.kind != _DICTIONARY else 0
            at += page.header + page.packed
        if nested and chunk.physical_type == "BYTE_ARRAY" and values > EPISODE_TEXTS:
            raise ValueError(f"its column {name} has {values:,} texts; more than {EPISODE_TEXTS:,} are not read")
        if not nested and values > self.rows:
            raise ValueError(f"its column {name} has {values:,} values for {self.rows:,} rows")
        return pages

    def _page(self, at: int) -> Page:
        for length in (_HEADER_BYTES, _LONG_HEADER_BYTES):
            self._source.seek(at)
            with suppress(EOFError):
                return page_of(self._source.read(length))
        raise ValueError("a page has no whole header")


def _texts_of(array: Any) -> Iterator[Any]:
    """The texts in a column, as numbers of a dictionary: also those in its lists and structs."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield array
    elif pa.types.is_list(kind):
        yield from _texts_of(array.flatten())
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _texts_of(part)


class Page(NamedTuple):
    header: int  # bytes of the header itself
    kind: int
    unpacked: int
    packed: int
    values: int
    encoding: int


def page_of(data: bytes) -> Page:
    """The page whose header the data begin with; ValueError if they do not begin with one, EOFError if it is longer."""
    reader = _Thrift(data)
    try:
        fields = reader.record()
    except IndexError:
        raise EOFError from None
    kind = fields.get(1, -1)
    inner = fields.get({_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}.get(kind, 0))
    if not isinstance(inner, dict):
        raise ValueError(f"a page is of an unknown kind ({kind!r:.20})")
    told = cast("dict[int, int]", inner)
    encoding = told.get(4 if kind == _DATA_2 else 2, -1)
    return Page(reader.at, kind, fields.get(2, -1), fields.get(3, -1), told.get(1, -1), encoding)


class _Thrift:
    """Reads Thrift's compact protocol: numbers and structs, which is all that the header of a page has to say."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def record(self, depth: int = 0) -> dict[int, Any]:
        """A struct: values by the numbers of their fields. IndexError, if the data end before it does."""
        fields: dict[int, Any] = {}
        number = 0
        if depth > 4:
            raise ValueError("a page's header goes too deep")
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 8:
            length = self._varint()
            self.at += length
            return None
        if kind == 12:
            return self.record(depth + 1)
        if kind in (3, 7):
            self.at += 1 if kind == 3 else 8
            return None
        raise ValueError(f"a page's header has a field of kind {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 127:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _signed(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
