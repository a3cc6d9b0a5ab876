"""Unlabelled text in the demo language, for pretraining: passages of one or two sentences.

It draws from the same grammar as the demo's tasks and never sees a label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from objectives.language import Scene, ask, change, draw_scene, feel, opine, tell
from objectives.lexicon import ANIMATE, CAUSES, GENRES, Concept, past

Passage = tuple[str, str | None]


def passages(seed: int | str) -> Iterator[Passage]:
    """An endless, seeded stream."""
    rng = Random(f"corpus/{seed}")
    while True:
        yield _passage(rng)


def _passage(rng: Random) -> Passage:
    kind = rng.random()
    if kind < 0.2:
        return _review(rng)
    if kind < 0.28:
        return explain(rng, doer=rng.random() < 0.5)[:2]
    scene = draw_scene(rng, genre=rng.choice(tuple(GENRES)))
    if rng.random() < 0.1:
        scene = replace(scene, negated=True)
    if kind < 0.4:
        return tell(rng, scene), None
    if kind < 0.5:
        return ask(rng, scene, rng.choice(scene.roles)), tell(rng, scene)
    if kind < 0.75:
        return tell(rng, scene), tell(rng, scene)
    if kind < 0.85:
        return tell(rng, scene), tell(rng, generalise(rng, scene))
    other = scene
    for role in scene.roles:
        if rng.random() < 0.4:
            other = change(rng, other, role)
    return tell(rng, scene), tell(rng, other)


def _review(rng: Random) -> Passage:
    polarity = rng.random() < 0.5
    first = opine(rng, polarity)
    if rng.random() < 0.3:
        return first, None
    second = opine(rng, polarity) if rng.random() < 0.5 else feel(rng, polarity, "it") + " ."
    return first, second


def generalise(rng: Random, scene: Scene) -> Scene:
    """A scene that follows from this one: hypernyms for nouns, less said."""
    for role in ("agent", "patient"):
        phrase = getattr(scene, role)
        if phrase and rng.random() < 0.5:
            phrase = replace(phrase, concept=(phrase.category,))
        if phrase and rng.random() < 0.5:
            phrase = replace(phrase, adjective=None)
        scene = scene.having(role, phrase)
    for role in ("place", "time"):
        if rng.random() < 0.4:
            scene = scene.having(role, None)
    return scene


def explain(rng: Random, *, doer: bool, genre: str | None = None) -> tuple[str, str, str]:
    """A deed with its reason in a pronoun, that reason about the right one, and about the wrong one."""
    words: tuple[Concept, tuple[str, ...], tuple[str, ...]] = rng.choice(CAUSES)
    verb, of_doer, of_other = words
    nouns = [c for category in ANIMATE for c in GENRES[genre or rng.choice(tuple(GENRES))][category]]
    first, second = rng.sample(nouns, 2)
    reason = rng.choice(sorted(set(of_doer) - set(of_other) if doer else set(of_other) - set(of_doer)))
    names = [f"the {rng.choice(noun)}" for noun in (first, second)]
    deed = f"{names[0]} {past(rng.choice(verb))} {names[1]} because it was {reason} ."
    right, wrong = names if doer else names[::-1]
    return deed, f"{right} was {reason} .", f"{wrong} was {reason} ."
