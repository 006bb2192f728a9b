"""Labels as an append-only history: nothing that was judged is ever overwritten. Torch-free.

Adding, replacing, deleting and undoing each append one event; what counts at present is computed from them, so undo
works without limit and after a restart, and an earlier judgement can always be looked up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core.preferences.labels import LabelError, LabelRecord


@dataclass(frozen=True, kw_only=True)
class LabelEvent:
    """One change: labels that leave the current view and labels that enter it, or an earlier event undone."""

    sequence: int  # 1, 2, 3 … in the order of the changes
    time: float
    records: tuple[LabelRecord, ...] = ()
    removed: tuple[str, ...] = ()  # ids of labels
    undoes: int | None = None  # sequence of an earlier event

    @property
    def action(self) -> str:
        """add, replace, delete or undo."""
        if self.undoes is not None:
            return "undo"
        return "replace" if self.records and self.removed else "add" if self.records else "delete"

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON values."""
        return {
            "sequence": self.sequence,
            "time": self.time,
            "records": [each.to_dict() for each in self.records],
            "removed": list(self.removed),
            "undoes": self.undoes,
        }

    @classmethod
    def from_dict(cls, body: Any) -> "LabelEvent":
        """The event that :meth:`to_dict` wrote. Raises LabelError."""
        if not isinstance(body, dict):
            raise LabelError("an event of the labels' history is an object")
        wanted = {"sequence": int, "time": float, "records": list, "removed": list, "undoes": int}
        for name, kind in wanted.items():
            if name not in body:
                raise LabelError(f"an event of the labels' history lacks '{name}'")
            good = isinstance(body[name], kind) or (name == "undoes" and body[name] is None)
            if not good:
                raise LabelError(f"'{name}' of an event of the labels' history is {str(body[name])[:80]!r}")
        return cls(
            sequence=body["sequence"],
            time=body["time"],
            records=tuple(LabelRecord.from_dict(each) for each in body["records"]),
            removed=tuple(str(each) for each in body["removed"]),
            undoes=body["undoes"],
        )


class LabelHistory:
    """Events and what counts after them.

    The planning methods change nothing: they return the event to write. Write it to disk, then :meth:`append` it.
    """

    def __init__(self, events: Iterable[LabelEvent] = ()) -> None:
        self.events: list[LabelEvent] = []
        self._current: dict[str, LabelRecord] = {}
        self._listed: tuple[LabelRecord, ...] | None = None  # the same as it was asked for last
        self._known: set[str] = set()  # ids of all labels there ever were
        for each in events:
            self.append(each)

    @property
    def current(self) -> tuple[LabelRecord, ...]:
        """The labels that count, in the order in which they were given; a replacement stands where the first stood."""
        if self._listed is None:
            self._listed = tuple(self._current.values())
        return self._listed

    def __len__(self) -> int:
        """How many labels count."""
        return len(self._current)

    def get(self, label: str) -> LabelRecord:
        """The current label with this id. Raises LabelError when there is none."""
        if label not in self._current:
            raise LabelError(f"there is no label {label} (or it was deleted)")
        return self._current[label]

    def add(self, records: Sequence[LabelRecord], time: float) -> LabelEvent:
        """Plan to add labels (several at once for one best-and-worst answer or one imported file)."""
        return self._event(time, records=tuple(records))

    def replace(self, label: str, record: LabelRecord, time: float) -> LabelEvent:
        """Plan to put ``record`` in the place of a label; its ``replaces`` must name that one."""
        if record.replaces != label:
            raise LabelError(f"the new label says it replaces {record.replaces}, not {label}")
        return self._event(time, records=(record,), removed=(label,))

    def delete(self, labels: Sequence[str], time: float) -> LabelEvent:
        """Plan to take labels out of the current view."""
        return self._event(time, removed=tuple(labels))

    def undo(self, time: float) -> LabelEvent | None:
        """Plan to undo the newest change that is not undone yet; None when nothing is left to undo."""
        undone = {each.undoes for each in self.events}
        for each in reversed(self.events):
            if each.undoes is None and each.sequence not in undone:
                return self._event(time, undoes=each.sequence)
        return None

    def event(self, sequence: int) -> LabelEvent:
        """The event with this number."""
        return self.events[sequence - 1]

    def append(self, event: LabelEvent) -> None:
        """Let an event count. Raises LabelError when it does not follow the events before it."""
        self._check(event)
        self.events.append(event)
        self._listed = None
        self._known.update(each.id for each in event.records)
        if event.undoes is None:
            self._current = applied(self._current, event)
        else:
            self._current = current_labels(self.events)

    def _event(self, time: float, **changes: Any) -> LabelEvent:
        event = LabelEvent(sequence=len(self.events) + 1, time=time, **changes)
        self._check(event)
        return event

    def _check(self, event: LabelEvent) -> None:
        if event.sequence != len(self.events) + 1:
            raise LabelError(f"event {event.sequence} cannot follow event {len(self.events)}")
        if event.undoes is not None:
            if event.records or event.removed:
                raise LabelError("an undo brings no labels and removes none by itself")
            if not 0 < event.undoes < event.sequence or self.event(event.undoes).undoes is not None:
                raise LabelError(f"there is no event {event.undoes} to undo")
            return
        if not event.records and not event.removed:
            raise LabelError("a change needs at least one label")
        new: set[str] = set()
        for record in event.records:
            if record.id in self._known or record.id in new:
                raise LabelError(f"there is a label {record.id} already")
            new.add(record.id)
        for each in event.removed:
            self.get(each)


def applied(view: dict[str, LabelRecord], event: LabelEvent) -> dict[str, LabelRecord]:
    """The current view after one event that is no undo."""
    if not event.removed:
        view.update((each.id, each) for each in event.records)
        return view
    after: dict[str, LabelRecord] = {}
    entering = list(event.records)
    for key, record in view.items():
        if key not in event.removed:
            after[key] = record
        else:
            after.update((each.id, each) for each in entering)
            entering = []
    return after


def current_labels(events: Sequence[LabelEvent]) -> dict[str, LabelRecord]:
    """The labels that count after ``events``, by id."""
    undone = {each.undoes for each in events}
    view: dict[str, LabelRecord] = {}
    for each in events:
        if each.undoes is None and each.sequence not in undone:
            view = applied(view, each)
    return view
