"""Changes of the change stream."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple


class Change(NamedTuple):
    """A change in a stream of changes."""

    #: What happened.
    what: Literal["put", "remove", "create", "drop", "rename", "clear", "other"]
    #: Name of the tree before the change; of a created tree, its name.
    tree: str
    #: The key of a put or remove.
    key: Any
    #: The new value of a put, as stored: a tree's codec is not applied.
    value: Any
    #: For a put or remove, whether the key was present before. `None`: the write did not look.
    existed: bool | None
    #: New name of a renamed tree.
    renamed_to: str | None
