"""Sentences of the demo language that follow from others: less said of a scene, and reasons."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from objectives.demo.language import Scene
from objectives.demo.lexicon import ANIMATE, CAUSES, GENRES, Concept, past


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
