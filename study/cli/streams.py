"""Standard output and error that ignore a closed pipe or terminal, so that work goes on."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

GONE = (errno.EPIPE, errno.EIO)
"""The reader of a pipe has left; the terminal has hung up."""


class _Outliving(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in GONE:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


@contextmanager
def outliving_their_readers() -> Iterator[None]:
    """For a command whose work matters more than its words; streams that somebody else replaced are left."""
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _outliving(kept[0], sys.__stdout__), _outliving(kept[1], sys.__stderr__)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = kept


def _outliving(stream: TextIO, original: TextIO | None) -> TextIO:
    if stream is not original or not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    raw = _Outliving(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or raw.isatty(),
        write_through=stream.write_through,
    )


def reader_has_left(descriptor: int = 1) -> bool:
    """Whether whatever is written there would break: the other end of the pipe is closed."""
    look = select.poll()
    look.register(descriptor, select.POLLOUT)
    return any(what & select.POLLERR for _, what in look.poll(0))
