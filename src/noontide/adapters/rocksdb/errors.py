"""What can go wrong with an index on disk.

NoontideError
└── IndexFailed         the database could not do what it was asked; the rows already there are whole batches
    ├── IndexInUse      another process (or another object in this one) has the folder open
    └── IndexClosed     the index was closed before this call
"""

from __future__ import annotations

from noontide.core.errors import NoontideError


class IndexFailed(NoontideError):
    """The index could not be read or written; close it, open it again and refill what is missing from the log."""


class IndexInUse(IndexFailed):
    """The folder is held by somebody else; nothing in it was touched."""


class IndexClosed(IndexFailed):
    """A call came after `close`."""
