"""Processes that run a function of a test.

They are forked by a server without threads. A fork of the test process itself, whose threads come from many
tests, may inherit a lock that nobody releases.
"""

from __future__ import annotations

import multiprocessing

CLEAN = multiprocessing.get_context("forkserver")
CLEAN.set_forkserver_preload(
    [
        "storage.database",
        "study.workers.worker",
        "objectives.finetune",
        "objectives.data",
        "transformers.models.bert.modeling_bert",
        "transformers.models.bert.tokenization_bert",
    ]
)
