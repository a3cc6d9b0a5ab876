"""Text in the demo language, for pretraining: passages of one or two sentences.

It draws from the same grammar as the demo's tasks and has none of their labels; a passage knows only whether
its sentences tell of one scene, as a text knows which sentences follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import NamedTuple

from objectives.demo.language import Scene, ask, change, draw_scene, feel, opine, tell
from objectives.demo.lexicon import ANIMATE, CAUSES, GENRES, Concept, past


class Passage(NamedTuple):
    first: str
    second: str | None = None
    follows: bool | None = None
    """Whether both sentences tell of one scene; None where they do in part, or a word gives it away."""


def passages(seed: int | str) -> Iterator[Passage]:
    """An endless, seeded stream."""
    rng = Random(f"corpus/{seed}")
    while True:
        yield _passage(rng)


def _passage(rng: Random) -> Passage:
    kind = rng.random()
    if kind < 0.24:
        return _review(rng)
    if kind < 0.30:
        return Passage(*explain(rng, doer=rng.random() < 0.5)[:2])
    scene = draw_scene(rng, genre=rng.choice(tuple(GENRES)))
    if rng.random() < 0.1:
        scene = replace(scene, negated=True)
    if kind < 0.38:
        return Passage(tell(rng, scene))
    if kind < 0.46:
        return Passage(ask(rng, scene, rng.choice(scene.roles)), tell(rng, scene))
    if kind < 0.68:
        return _linked(rng, tell(rng, scene), "namely", tell(rng, scene), follows=True)
    if kind < 0.78:
        general = tell(rng, generalise(rng, scene))
        return _linked(rng, tell(rng, scene), "thus", general, follows=True)
    other, changes = scene, rng.randint(1, len(scene.roles))
    for role in rng.sample(scene.roles, changes):
        other = change(rng, other, role)
    follows = None if changes < 3 else False
    return _linked(rng, tell(rng, scene), "meanwhile", tell(rng, other), follows=follows)


def _review(rng: Random) -> Passage:
    polarity = rng.random() < 0.5
    first = opine(rng, polarity)
    if rng.random() < 0.3:
        return Passage(first)
    second = opine(rng, polarity) if rng.random() < 0.5 else feel(rng, polarity, "it") + " ."
    return _linked(rng, first, "indeed", second, follows=None)


def _linked(rng: Random, first: str, word: str, second: str, *, follows: bool | None) -> Passage:
    """Now and then a word says how the second sentence goes on from the first."""
    if rng.random() < 0.4:
        return Passage(first, f"{word} , {second}")
    return Passage(first, second, follows)


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
