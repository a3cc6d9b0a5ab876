"""The report's figures as PNG and SVG files, where an exporter and a browser are installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from study.cli.wording import slug
from study.reporting.composite import composite
from study.reporting.document import Chart

FORMATS = ("svg", "png")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SHELLS = ("/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/headless_shell")
"""Installed without a browser around it; the exporter does not look there."""


def why_not() -> str | None:
    """Why figures cannot be exported here, with what to do; None where they can."""
    if find_spec("kaleido") is None:
        return "kaleido is not installed: pip install 'elsa-study[figures]'"
    if _browser() is None:
        return "no Chromium or Chrome was found: install one, or set BROWSER_PATH to its binary"
    return None


def export(
    charts: Sequence[Chart], folder: Path, badges: Sequence[str] = ()
) -> tuple[dict[str, list[Path]], str | None]:
    """Each chart as one SVG and one PNG; the files by chart name, and why there are none."""
    reason = why_not()
    if reason is not None or not charts:
        return {}, reason
    import plotly.io

    browser = _browser()
    if browser is not None:
        os.environ.setdefault("BROWSER_PATH", browser)
    folder.mkdir(parents=True, exist_ok=True)
    files = {chart.name: [folder / f"{slug(chart.name)}.{kind}" for kind in FORMATS] for chart in charts}
    figures = [composite(chart, badges=badges) for chart in charts for _ in FORMATS]
    paths = [path for found in files.values() for path in found]
    scales = [2 if path.suffix == ".png" else 1 for path in paths]
    sizes = [(figure["layout"]["width"], figure["layout"]["height"]) for figure in figures]
    try:
        plotly.io.write_images(
            fig=figures,
            file=paths,
            scale=scales,
            width=[width for width, _ in sizes],
            height=[height for _, height in sizes],
        )
    except Exception as error:
        # The exporter drives a browser: whatever goes wrong there must not cost the report itself.
        return {}, f"the exporter failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return files, None


def _browser() -> str | None:
    named = os.environ.get("BROWSER_PATH")
    if named:
        return named
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    return found or next((path for path in SHELLS if Path(path).exists()), None)
