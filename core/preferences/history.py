"""The labels that hold, and undo without limit, over a history that only grows. Torch-free.

A store keeps entries (see ``core.store.labels``): an entry says something new, or replaces an earlier one, or without
a record takes it back. Changing a label is an entry with a new record (another ``id``); undoing the change is an entry
with the old record again. So what was said when can always be looked up, and undo works after a restart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.preferences.labels import InvalidLabelError, LabelRecord


class Entry(Protocol):
    """One entry of the history, as the store gives it."""

    @property
    def id(self) -> int: ...
    @property
    def replaces(self) -> int | None: ...
    @property
    def record(self) -> dict[str, Any] | None: ...


class EntryStore(Protocol):
    """What a label book needs of a store; every call that adds is on disk when it returns."""

    def add_many(self, records: Sequence[Mapping[str, Any]]) -> Sequence[Entry]: ...
    def replace(self, id: int, record: Mapping[str, Any]) -> Entry: ...
    def delete(self, id: int) -> Entry: ...
    def history(self) -> Sequence[Entry]: ...


@dataclass
class _Chain:
    """A label through its changes: what it says is the last of ``said``; nothing is left when it was taken back."""

    newest: int  # entry that a further change replaces
    said: list[tuple[int, LabelRecord]] = field(default_factory=list)  # (entry that first said it, record)

    def take(self, entry: int, record: LabelRecord | None) -> None:
        self.newest = entry
        if record is None:
            self.said.clear()
            return
        before = [position for position, (_, each) in enumerate(self.said) if each.id == record.id]
        if before:
            del self.said[before[0] + 1 :]
        else:
            self.said.append((entry, record))


class LabelBook:
    """The current labels of a session, in the order in which they were given; a changed one keeps its place.

    Raises InvalidLabelError when an entry of the history is no label.
    """

    def __init__(self, store: EntryStore) -> None:
        self._store = store
        self._chains: dict[int, _Chain] = {}  # by the first entry of each
        self._firsts: dict[int, int] = {}  # entry -> first entry of its chain
        for each in store.history():
            self._take(each)

    @property
    def labels(self) -> list[LabelRecord]:
        """The labels that hold."""
        return [chain.said[-1][1] for chain in self._chains.values() if chain.said]

    def add(self, records: Sequence[LabelRecord]) -> None:
        """Add labels, all or none: one answer, the five of a best-and-worst, or an imported file."""
        known = {each.id for each in self.labels}
        for each in records:
            if each.id in known:
                raise InvalidLabelError(f"there is a label {each.id} already")
            known.add(each.id)
        for entry in self._store.add_many([each.to_dict() for each in records]):
            self._take(entry)

    def replace(self, label: str, record: LabelRecord) -> None:
        """Put a corrected label in the place of one; its ``replaces`` must name that one. Raises InvalidLabelError."""
        if record.replaces != label:
            raise InvalidLabelError(f"the new label says that it replaces {record.replaces}, not {label}")
        self._take(self._store.replace(self._find(label).newest, record.to_dict()))

    def delete(self, label: str) -> None:
        """Take a label out of those that hold; the history keeps it. Raises InvalidLabelError."""
        self._take(self._store.delete(self._find(label).newest))

    def versions(self, label: str) -> list[LabelRecord]:
        """What a label said before its changes, then what it says. Raises InvalidLabelError."""
        return [record for _, record in self._find(label).said]

    def undo(self) -> list[LabelRecord]:
        """Take back the newest answer or change that holds, and return it so that it can be judged anew.

        An answer that gave several labels (best and worst of four) goes as a whole; a change gives way to what the
        label said before. Empty when nothing is left.
        """
        holding = [chain for chain in self._chains.values() if chain.said]
        if not holding:
            return []
        newest = max(holding, key=lambda chain: chain.said[-1][0])
        record = newest.said[-1][1]
        if len(newest.said) > 1:
            self._take(self._store.replace(newest.newest, newest.said[-2][1].to_dict()))
            return [record]
        together = [
            chain for chain in holding if record.group is not None and chain.said[-1][1].group == record.group
        ] or [newest]
        taken = [chain.said[-1][1] for chain in together]
        for chain in reversed(together):
            self._take(self._store.delete(chain.newest))
        return taken

    def _find(self, label: str) -> _Chain:
        for chain in self._chains.values():
            if chain.said and chain.said[-1][1].id == label:
                return chain
        raise InvalidLabelError(f"there is no label {label}, or it was taken back")

    def _take(self, entry: Entry) -> None:
        first = entry.id if entry.replaces is None else self._firsts[entry.replaces]
        self._firsts[entry.id] = first
        chain = self._chains.setdefault(first, _Chain(entry.id))
        chain.take(entry.id, None if entry.record is None else LabelRecord.from_dict(entry.record))
