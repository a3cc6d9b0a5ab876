"""A study's spec as a TOML file for `launch --spec`: the file that repeats the study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from objectives.contract import Recipe
from objectives.locations import is_hub, is_path
from objectives.settings import declared
from objectives.tasks import toml_text
from study.specs.study_spec import StudySpec


def to_toml(name: str, spec: StudySpec) -> str:
    """Every setting is written, so that no default of another version can change the study."""
    lists = {item.name: getattr(spec, item.name) for item in declared(StudySpec)}
    recipe = {i.name: getattr(spec.recipe, i.name) for i in declared(Recipe) if i.about.is_flag}
    parts = {
        "What is studied": {"study": name, "task": spec.task, **_source(spec)},
        "The grid": {"quick": spec.quick or None, **lists, **dict(spec.protocol_settings)},
    }
    if not spec.recorded:
        parts["How a trial trains"] = recipe
    text = "\n".join(_section(title, values) for title, values in parts.items())
    return text + (f"\n# The task\n{_definition(spec.definition)}" if spec.definition else "")


def _source(spec: StudySpec) -> dict[str, Any]:
    if spec.demo:
        return {"demo": True}
    if spec.recorded:
        return {"model": [spec.model], "recorded": spec.data}
    found: dict[str, Any] = {"model": [spec.model_path or spec.model]}
    # Data from the hub are the task's own and need no name.
    return found | ({"data": spec.data} if is_path(spec.data) or is_hub(spec.data) else {})


def _definition(definition: Mapping[str, Any]) -> str:
    inner = {name: value for name, value in definition.items() if isinstance(value, Mapping)}
    own = {name: value for name, value in definition.items() if name not in inner and name != "source"}
    tables = [toml_text.table("definition", own)]
    tables += [toml_text.table(f"definition.{name}", value) for name, value in inner.items() if value]
    return "\n".join(tables)


def _section(title: str, values: dict[str, Any]) -> str:
    known = {key: value for key, value in values.items() if value != (None,)}
    return f"# {title}\n{toml_text.pairs(known)}"
