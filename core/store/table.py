"""Rows that know whether they are whole: typed access to one table, each row with a CRC-32 over its values."""

import json
import math
import operator
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from core.store.database import Database
from core.store.errors import SessionBrokenError

Row = dict[str, Any]


def checksum(values: Sequence[Any]) -> int:
    """CRC-32 of the values as SQLite gives them back; types and borders between values count."""
    blobs = [value for value in values if isinstance(value, bytes)]
    shown = [len(value) if isinstance(value, bytes) else value for value in values]
    crc = zlib.crc32(repr(shown).encode("utf-8", "surrogatepass"))
    for blob in blobs:
        crc = zlib.crc32(blob, crc)
    return crc


def text(value: str) -> str:
    """``value`` as a TEXT column can hold it: lone surrogates (undecodable bytes of a terminal) become ``?``."""
    return str(value).encode("utf-8", "replace").decode()


def whole(value: Any) -> int:
    """``value`` as an INTEGER column gives it back. Raises ValueError beyond 64 bits."""
    number = operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} does not fit into 64 bits")
    return number


def real(value: float | None) -> float | None:
    """``value`` as a REAL column gives it back: NaN is NULL there, and −0 is 0."""
    return None if value is None or math.isnan(value) else float(value) + 0.0


def to_json(value: Any) -> str:
    """JSON in one line; NaN and infinities as Python writes them. Raises TypeError for what JSON cannot say."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


class Table:
    """One table: ``columns`` are all but ``id`` and ``checksum``, in any order."""

    def __init__(self, database: Database, name: str, columns: Sequence[str]) -> None:
        self._database = database
        self._name = name
        self._columns = tuple(columns)
        listed = ", ".join(("id", *self._columns, "checksum"))
        marks = ", ".join("?" * (len(self._columns) + 2))
        self._select = f"SELECT {listed} FROM {name}"
        self._insert = f"INSERT INTO {name} ({listed}) VALUES ({marks})"

    def insert(self, values: Mapping[str, Any], id: int | None = None) -> int:
        """Add a row. Its id is ``id`` or one that no row ever had. Returns the id."""
        return self.insert_many([values], id)[0]

    def insert_many(self, rows: Sequence[Mapping[str, Any]], id: int | None = None) -> list[int]:
        """Add rows in one transaction; ids rise by one from ``id``. Returns them."""
        with self._database.transaction() as connection:
            first = self._next_id() if id is None else id
            ids = list(range(first, first + len(rows)))
            values = [[row[name] for name in self._columns] for row in rows]
            connection.executemany(self._insert, map(self._with_checksum, ids, values))
            return ids

    def update(self, row: Row, changes: Mapping[str, Any]) -> Row:
        """Change columns of a row that :meth:`select` gave. Returns the row as it is now."""
        new = {**row, **changes}
        values = self._with_checksum(row["id"], [new[name] for name in self._columns])
        assignments = ", ".join(f"{name} = ?" for name in (*self._columns, "checksum"))
        with self._database.transaction() as connection:
            connection.execute(f"UPDATE {self._name} SET {assignments} WHERE id = ?", [*values[1:], row["id"]])
        return new

    def delete(self, where: str, parameters: Sequence[Any] = ()) -> None:
        with self._database.transaction() as connection:
            connection.execute(f"DELETE FROM {self._name} WHERE {where}", parameters)

    def select(self, rest: str = "", parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows of ``SELECT … rest``, verified. Raises SessionBrokenError that names a damaged row."""
        names = ("id", *self._columns)
        rows = []
        for *values, stored in self._database.rows(f"{self._select} {rest}", parameters):
            if checksum(values) != stored:
                raise self._damaged(values[0])
            rows.append(dict(zip(names, values, strict=True)))
        return rows

    def count(self, where: str = "1", parameters: Sequence[Any] = ()) -> int:
        return int(self._database.rows(f"SELECT count(*) FROM {self._name} WHERE {where}", parameters)[0][0])

    def parse(self, row: Row, column: str) -> Any:
        """The JSON value in a column."""
        try:
            return json.loads(row[column])
        except (ValueError, TypeError, RecursionError):
            raise self._damaged(row["id"]) from None

    def parse_object(self, row: Row, column: str) -> dict[str, Any]:
        """The JSON object in a column."""
        value = self.parse(row, column)
        if not isinstance(value, dict):
            raise self._damaged(row["id"])
        return value

    def _damaged(self, id: Any) -> SessionBrokenError:
        return SessionBrokenError(f"{self._database.path} is damaged: row {id!r} of '{self._name}' is not as written")

    def _with_checksum(self, id: int, values: list[Any]) -> list[Any]:
        return [id, *values, checksum([id, *values])]

    def _next_id(self) -> int:
        found = self._database.rows("SELECT seq FROM sqlite_sequence WHERE name = ?", (self._name,))
        highest = self._database.rows(f"SELECT coalesce(max(id), 0) FROM {self._name}")[0][0]
        return max(int(found[0][0]) if found else 0, int(highest)) + 1
