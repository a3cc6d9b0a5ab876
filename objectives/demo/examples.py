"""The embedded default of `--demo`: examples of nine kinds in the demo language, a model and a recipe.

Examples are drawn afresh from the grammar, seeded by task and split; nothing here is real data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from objectives.demo.consequences import explain, generalise
from objectives.demo.language import (
    Scene,
    ask,
    change,
    change_detail,
    differences,
    draw_scene,
    opine,
    opposite,
    tell,
)
from objectives.demo.lexicon import (
    ANIMATE,
    OPPOSITE_ADJECTIVES,
    OPPOSITE_TEMPERS,
    OPPOSITE_VERBS,
    PLACES,
    TIMES,
)
from objectives.demo.mistakes import spoil

MODEL_PATH = Path(__file__).parent / "model"

RECIPE: dict[str, Any] = {"epochs": 3, "batch_size": 32, "max_length": 48, "warmup": 0.5}
"""Recipe fields that `--demo` sets where the command line does not."""
LEARNING_RATES = (2.5e-4, 1e-3, 4e-3, 1.6e-2)
"""Those of `--demo`: the best one grows with depth from 1e-3 to 1.6e-2, never clearly at an edge."""

Example = dict[str, Any]
Draw = Callable[[Random], Example]


def _acceptability(rng: Random) -> Example:
    sentence = tell(rng, draw_scene(rng))
    label = int(rng.random() < 0.5)
    return {"sentence": sentence if label else spoil(rng, sentence), "label": label}


def _sentiment(rng: Random) -> Example:
    label = int(rng.random() < 0.5)
    return {"sentence": opine(rng, bool(label)), "label": label}


def _paraphrase(rng: Random) -> Example:
    label = int(rng.random() < 0.45)
    scene = draw_scene(rng, place=0.6)
    other = scene if label else _mutate(rng, scene)
    return {"sentence1": tell(rng, scene), "sentence2": tell(rng, other), "label": label}


def _similarity(rng: Random) -> Example:
    scene = draw_scene(rng, transitive=True, place=1.0, time=0.0)
    other = scene
    for role in rng.sample(scene.roles, rng.choice((0, 0, 0, 1, 1, 2))):
        other = change(rng, other, role)
    for _ in range(rng.randint(0, 4)):
        other = change_detail(rng, other)
    roles, details = differences(scene, other)
    label = max(0.0, 5 - 1.5 * (roles + details))
    return {"sentence1": tell(rng, scene), "sentence2": tell(rng, other), "label": label}


def _same_question(rng: Random) -> Example:
    label = int(rng.random() < 0.4)
    scene = draw_scene(rng, place=0.7)
    role = rng.choice(scene.roles)
    asked = [r for r in scene.roles if r != role]
    if label:
        other, other_role = scene, role
    elif rng.random() < 0.3 and len(asked) > 1:
        other, other_role = scene, rng.choice(asked)
    else:
        kept = [r for r in ("agent", "verb", "patient") if r in asked]
        other, other_role = change(rng, scene, rng.choice(kept)), role
    return {"question1": ask(rng, scene, role), "question2": ask(rng, other, other_role), "label": label}


def _inference(rng: Random, genre: str = "village") -> Example:
    label = rng.randrange(3)
    scene = draw_scene(rng, genre=genre, transitive=True)
    hypothesis = (generalise, _add, _contradict)[label](rng, scene)
    return {"premise": tell(rng, scene), "hypothesis": tell(rng, hypothesis), "label": label}


def _answer(rng: Random) -> Example:
    label = rng.randrange(2)
    scene = draw_scene(rng, transitive=True, place=0.6, time=0.5)
    role = rng.choice([r for r in scene.roles if r != "verb"])
    question = ask(rng, scene, role)
    if label:
        if role in ("place", "time") and rng.random() < 0.5:
            scene = scene.having(role, None)
        else:
            told = [r for r in ("agent", "verb", "patient") if r != role]
            scene = change(rng, scene, rng.choice(told))
    return {"question": question, "sentence": tell(rng, scene), "label": label}


def _entailment(rng: Random) -> Example:
    label = rng.randrange(2)
    scene = draw_scene(rng, transitive=True)
    other = rng.choice((_add, _contradict))(rng, scene) if label else generalise(rng, scene)
    return {"sentence1": tell(rng, scene), "sentence2": tell(rng, other), "label": label}


def _pronoun(rng: Random) -> Example:
    label = rng.randrange(2)
    deed, right, wrong = explain(rng, doer=rng.random() < 0.5, genre="village")
    return {"sentence1": deed, "sentence2": right if label else wrong, "label": label}


def _mutate(rng: Random, scene: Scene) -> Scene:
    """Another role filler or two, or only a detail."""
    if rng.random() < 0.65:
        return change_detail(rng, scene)
    for role in rng.sample(scene.roles, rng.choice((1, 2))):
        scene = change(rng, scene, role)
    return scene


def _add(rng: Random, scene: Scene) -> Scene:
    """A scene that may or may not hold where this one does: something more is said."""
    options = [role for role in ("place", "time") if getattr(scene, role) is None]
    options += [r for r in ("agent", "patient") if getattr(scene, r) and not getattr(scene, r).adjective]
    if not options:
        return change(rng, scene, "agent")
    added = rng.choice(options)
    if added in ("place", "time"):
        filler: Any = rng.choice(PLACES if added == "place" else TIMES)
        return replace(generalise(rng, scene), tense="past").having(added, filler)
    phrase = getattr(scene, added)
    qualities = tuple(OPPOSITE_TEMPERS if phrase.category in ANIMATE else OPPOSITE_ADJECTIVES)
    return scene.having(added, replace(phrase, adjective=rng.choice(qualities)))


def _contradict(rng: Random, scene: Scene) -> Scene:
    """A scene that cannot hold where this one does: a negation, an opposite or another place."""
    less = generalise(rng, scene)
    options = ["negation"]
    options += ["verb"] * 2 * (scene.verb in OPPOSITE_VERBS)
    options += [role for role in ("agent", "patient") if opposite(getattr(scene, role).adjective)]
    chosen = rng.choice(options)
    if chosen == "negation":
        return replace(less, negated=True)
    if chosen == "verb":
        return replace(less, verb=OPPOSITE_VERBS[scene.verb])
    phrase = getattr(less, chosen)
    return less.having(chosen, replace(phrase, adjective=opposite(getattr(scene, chosen).adjective)))


DRAWS: Mapping[str, Draw] = {
    "acceptability": _acceptability,
    "sentiment": _sentiment,
    "paraphrase": _paraphrase,
    "similarity": _similarity,
    "same question": _same_question,
    "inference": _inference,
    "answer": _answer,
    "entailment": _entailment,
    "pronoun": _pronoun,
}
"""Kinds of examples, by the name that a task's file gives."""
_SIZES = {"train": 1024, "validation": 320}


def examples(task: str, kind: str, split: str) -> list[Example]:
    """All examples of one split of a task, seeded by its name; no example of `train` is in another split."""
    if kind not in DRAWS:
        raise ValueError(f"unknown examples {kind!r}: the demo has {', '.join(DRAWS)}")
    if split.partition("_")[0] not in _SIZES:
        raise ValueError(f"unknown split {split!r} of {task}: the demo has {', '.join(_SIZES)}")
    drawn = _distinct(task, kind, split)
    if split != "train":
        seen = {_text(example) for example in _take(_distinct(task, kind, "train"), "train")}
        drawn = (example for example in drawn if _text(example) not in seen)
    return [example | {"idx": idx} for idx, example in enumerate(_take(drawn, split))]


def _take(drawn: Iterator[Example], split: str) -> list[Example]:
    return [next(drawn) for _ in range(_SIZES[split.partition("_")[0]])]


def _distinct(task: str, kind: str, split: str) -> Iterator[Example]:
    """Examples as they are drawn, without repetitions and without pairs of one and the same sentence."""
    rng = Random(f"demo/{task}/{split}")
    seen: set[tuple[str, ...]] = set()
    while True:
        elsewhere = kind == "inference" and split.endswith("_mismatched")
        example = _inference(rng, "harbour") if elsewhere else DRAWS[kind](rng)
        text = _text(example)
        if text not in seen and len(set(text)) == len(text):
            seen.add(text)
            yield example


def _text(example: Example) -> tuple[str, ...]:
    return tuple(value for name, value in example.items() if name != "label" and isinstance(value, str))
