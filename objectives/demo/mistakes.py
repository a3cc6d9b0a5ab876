"""Ungrammatical versions of sentences of the demo language: agreement, form and order errors."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from objectives.demo.lexicon import GENRES, INTRANSITIVE, TOWARDS_ANIMATE, TOWARDS_THINGS, past, plural, third

_VERBS = [
    v for group in (TOWARDS_ANIMATE, TOWARDS_THINGS, INTRANSITIVE) for concept in group for v in concept
]
_NOUNS = [n for genre in GENRES.values() for group in genre.values() for concept in group for n in concept]
_OTHER_NUMBER = {"was": "were", "were": "was", "is": "are", "are": "is", "do": "does", "does": "do"}
_OTHER_NUMBER |= {form: other for v in _VERBS for form, other in ((v, third(v)), (third(v), v))}
_OTHER_NOUN = {form: other for n in _NOUNS for form, other in ((n, plural(n)), (plural(n), n))}
_OTHER_FORM = {form: other for v in _VERBS for form, other in ((past(v), v), (v, past(v)))}
_COUNTING = {"a", "an", "two", "several", "many", "numerous"}


def spoil(rng: Random, sentence: str) -> str:
    """The sentence with one grammatical mistake."""
    words = sentence.split()
    ways: list[Callable[[], list[str] | None]] = [
        lambda: _swap_form(rng, words, _OTHER_NUMBER, after=None),
        lambda: _swap_form(rng, words, _OTHER_NUMBER, after=None),
        lambda: _swap_form(rng, words, _OTHER_NOUN, after=_COUNTING),
        lambda: _swap_form(rng, words, _OTHER_FORM, after={"not", "was", "were", "is", "are"}),
        lambda: _swap_order(rng, words),
    ]
    while True:
        spoiled = rng.choice(ways)()
        if spoiled is not None and spoiled != words:
            return " ".join(spoiled)


def _swap_form(
    rng: Random, words: list[str], forms: dict[str, str], after: set[str] | None
) -> list[str] | None:
    """One word in its other form; `after` keeps to words that follow, at most one apart, one of these."""
    places = [
        i
        for i, word in enumerate(words)
        if word in forms and (after is None or after & set(words[max(0, i - 2) : i]))
    ]
    if not places:
        return None
    place = rng.choice(places)
    return [*words[:place], forms[words[place]], *words[place + 1 :]]


def _swap_order(rng: Random, words: list[str]) -> list[str] | None:
    """A determiner after its noun phrase's next word."""
    places = [i for i, word in enumerate(words[:-2]) if word in _COUNTING | {"the", "some"}]
    if not places:
        return None
    place = rng.choice(places)
    return [*words[:place], words[place + 1], words[place], *words[place + 2 :]]
