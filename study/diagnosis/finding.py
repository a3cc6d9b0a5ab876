"""What one check found, in words for a person and in JSON for a bug report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from objectives.contract import printable

Verdict = Literal["ok", "slow", "failed"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    check: str
    """What was looked at."""
    verdict: Verdict = "ok"
    found: str
    next_step: str = ""
    """What to do where it is not ok."""
    details: dict[str, Any] = field(default_factory=dict)
    """Figures behind the words."""

    def __str__(self) -> str:
        then = f"; {self.next_step}" if self.next_step else ""
        return f"{self.verdict:<7}" + printable(f"{self.check}: {self.found}{then}")


def failed(check: str, found: object, next_step: str, **details: Any) -> Finding:
    return Finding(check=check, verdict="failed", found=str(found), next_step=next_step, details=details)


def summary(findings: Sequence[Finding]) -> str:
    slow, broken = (sum(one.verdict == verdict for one in findings) for verdict in ("slow", "failed"))
    if broken:
        return f"{broken} of {len(findings)} checks failed: the lines above say what to do"
    return f"all {len(findings)} checks passed" + (f", {slow} of them slowly" if slow else "")


def exit_code(findings: Sequence[Finding]) -> int:
    return 1 if any(one.verdict == "failed" for one in findings) else 0


def to_json(findings: Sequence[Finding]) -> str:
    tree = {"findings": [asdict(one) for one in findings], "failed": bool(exit_code(findings))}
    return json.dumps(tree, indent=2)
