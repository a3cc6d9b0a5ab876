"""Paths as people give them: what no file can be called is refused where it is read."""

from __future__ import annotations

import os

LONGEST_NAME = 255
"""Bytes of one part of a path, on every usual file system."""


def path_text(text: str) -> str:
    """The same text; ValueError where no file or folder can have that name."""
    full = os.path.expanduser(text)
    if text.startswith("~") and full == text:
        raise ValueError("there is no such user")
    try:
        if max(map(len, os.fsencode(full).split(b"/"))) > LONGEST_NAME:
            # Below a folder that is yet to be made, nobody would notice before it is.
            raise ValueError
        os.lstat(full)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError):
        # Too long, with a zero byte, or not to be written in the file system's encoding.
        raise ValueError("no file can have that name") from None
    return text
