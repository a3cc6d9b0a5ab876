"""The grammar of the demo language: scenes, the sentences and questions that tell them, and opinions.

A scene is a meaning; rendering it draws synonyms, voice and word order, so that two renderings of one scene
are paraphrases. Nothing here knows of tasks or labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from objectives.demo.lexicon import (
    ANIMATE,
    ASPECTS,
    BAD,
    COLOURS,
    DISLIKES,
    GENRES,
    GOOD,
    INTENSIFIERS,
    INTRANSITIVE,
    LIKES,
    NEGATIONS,
    OPPOSITE_ADJECTIVES,
    OPPOSITE_TEMPERS,
    PLACES,
    QUANTITIES,
    REVIEWERS,
    THINGS,
    TIMES,
    TOPICS,
    TOWARDS_ANIMATE,
    TOWARDS_THINGS,
    Concept,
    past,
    plural,
    third,
)

Tense = Literal["past", "present"]
ROLES = ("agent", "verb", "patient", "place", "time")


@dataclass(frozen=True)
class Phrase:
    """A participant: its concept, its category, how many of it and what it is like."""

    concept: Concept
    category: str
    quantity: Concept = ("the",)
    adjective: Concept | None = None

    @property
    def is_plural(self) -> bool:
        return self.quantity not in (("the",), ("a",))


@dataclass(frozen=True)
class Scene:
    """Who did what to whom, where and when."""

    agent: Phrase
    verb: Concept
    patient: Phrase | None = None
    place: Concept | None = None
    time: Concept | None = None
    tense: Tense = "past"
    negated: bool = False
    genre: str = "village"

    @property
    def roles(self) -> list[str]:
        """The roles that are filled."""
        return [role for role in ROLES if getattr(self, role) is not None]

    def having(self, role: str, filler: Any) -> Scene:
        """The same scene but for one role."""
        return replace(self, **{role: filler})


def draw_phrase(rng: Random, genre: str, categories: Sequence[str]) -> Phrase:
    category = rng.choice(categories)
    kind = OPPOSITE_TEMPERS if category in ANIMATE else OPPOSITE_ADJECTIVES
    qualities = (*kind, *COLOURS) if category not in ("person", "dish") else tuple(kind)
    adjective = rng.choice(qualities) if rng.random() < 0.35 else None
    quantity = rng.choices(QUANTITIES, weights=(5, 3, 1, 1, 1))[0]
    return Phrase(rng.choice(GENRES[genre][category]), category, quantity, adjective)


def draw_scene(
    rng: Random,
    *,
    genre: str = "village",
    transitive: bool | None = None,
    place: float = 0.5,
    time: float = 0.3,
) -> Scene:
    """A random scene; `place` and `time` are the chances that it says where and when."""
    agent = draw_phrase(rng, genre, ANIMATE)
    patient, verb = None, rng.choice(INTRANSITIVE)
    if rng.random() < 0.8 if transitive is None else transitive:
        if agent.category == "person" and rng.random() < 0.6:
            patient, verb = draw_phrase(rng, genre, THINGS), rng.choice(TOWARDS_THINGS)
        else:
            patient, verb = draw_phrase(rng, genre, ANIMATE), rng.choice(TOWARDS_ANIMATE)
            while patient.concept == agent.concept:
                patient = draw_phrase(rng, genre, ANIMATE)
    where = rng.choice(PLACES) if rng.random() < place else None
    when = rng.choice(TIMES) if rng.random() < time else None
    tense: Tense = "past" if when or rng.random() < 0.6 else "present"
    return Scene(agent, verb, patient, where, when, tense, genre=genre)


def change(rng: Random, scene: Scene, role: str) -> Scene:
    """The scene with another filler, of the same kind, in one role that it has."""
    if role == "verb":
        verbs = INTRANSITIVE
        if scene.patient:
            verbs = TOWARDS_ANIMATE if scene.patient.category in ANIMATE else TOWARDS_THINGS
        return scene.having(role, _another(rng, verbs, scene.verb))
    if role in ("place", "time"):
        return scene.having(role, _another(rng, PLACES if role == "place" else TIMES, getattr(scene, role)))
    phrase: Phrase = getattr(scene, role)
    others = [c for c in GENRES[scene.genre][phrase.category] if c not in _nouns(scene)]
    return scene.having(role, replace(phrase, concept=rng.choice(others)))


def change_detail(rng: Random, scene: Scene) -> Scene:
    """The scene with a small difference: denied or not, how many of someone, or the opposite quality."""
    changed = [replace(scene, negated=not scene.negated)]
    for role in ("agent", "patient"):
        phrase: Phrase | None = getattr(scene, role)
        if phrase is None:
            continue
        number = _another(rng, [q for q in QUANTITIES if q not in (("the",), ("a",))], phrase.quantity)
        changed.append(scene.having(role, replace(phrase, quantity=number)))
        if contrary := opposite(phrase.adjective):
            changed += 2 * [scene.having(role, replace(phrase, adjective=contrary))]
    return rng.choice(changed)


def differences(one: Scene, other: Scene) -> tuple[int, int]:
    """How many roles, and how many details, are not the same in two scenes of one shape."""
    phrases = [(a, b) for a, b in ((one.agent, other.agent), (one.patient, other.patient)) if a and b]
    roles = sum(a.concept != b.concept for a, b in phrases)
    roles += sum(getattr(one, role) != getattr(other, role) for role in ("verb", "place", "time"))
    details = sum((a.quantity != b.quantity) + (a.adjective != b.adjective) for a, b in phrases)
    return roles, details + (one.negated != other.negated)


def opposite(adjective: Concept | None) -> Concept | None:
    if adjective is None:
        return None
    return OPPOSITE_ADJECTIVES.get(adjective) or OPPOSITE_TEMPERS.get(adjective)


def _nouns(scene: Scene) -> list[Concept]:
    return [phrase.concept for phrase in (scene.agent, scene.patient) if phrase]


def _another(rng: Random, concepts: Sequence[Concept], concept: Concept) -> Concept:
    return rng.choice([c for c in concepts if c != concept])


def tell_phrase(rng: Random, phrase: Phrase) -> str:
    words = [rng.choice(phrase.quantity)]
    if phrase.adjective:
        words.append(rng.choice(phrase.adjective))
    noun = rng.choice(phrase.concept)
    words.append(plural(noun) if phrase.is_plural else noun)
    if words[0] == "a" and words[1][0] in "aeiou":
        words[0] = "an"
    return " ".join(words)


def tell_place(rng: Random, place: Concept) -> str:
    preposition = place[0].split("~")[0]
    return f"{preposition} the {rng.choice((place[0].split('~')[1], *place[1:]))}"


def tell_time(rng: Random, time: Concept) -> str:
    return rng.choice(time).replace("~", " ")


def be(tense: Tense, is_plural: bool) -> str:
    if tense == "past":
        return "were" if is_plural else "was"
    return "are" if is_plural else "is"


def do(tense: Tense, is_plural: bool) -> str:
    if tense == "past":
        return "did"
    return "do" if is_plural else "does"


def tell(rng: Random, scene: Scene, *, passive: float = 0.3) -> str:
    """One sentence that says the scene; `passive` is the chance of that voice where it is possible."""
    agent, verb = tell_phrase(rng, scene.agent), rng.choice(scene.verb)
    many = scene.agent.is_plural
    if scene.patient and rng.random() < passive:
        negation = " not" if scene.negated else ""
        auxiliary = be(scene.tense, scene.patient.is_plural)
        core = f"{tell_phrase(rng, scene.patient)} {auxiliary}{negation} {past(verb)} by {agent}"
    else:
        if scene.negated:
            predicate = f"{do(scene.tense, many)} not {verb}"
        elif scene.tense == "past":
            predicate = past(verb)
        else:
            predicate = verb if many else third(verb)
        core = f"{agent} {predicate}" + (f" {tell_phrase(rng, scene.patient)}" if scene.patient else "")
    place, time = _circumstances(rng, scene)
    front = rng.random() if place or time else 1.0
    if time and front < 0.4:
        return " ".join(filter(None, (time, ",", core, place, ".")))
    if place and front < 0.25:
        return " ".join(filter(None, (place, ",", core, time, ".")))
    return " ".join(filter(None, (core, *rng.sample((place, time), 2), ".")))


def _circumstances(rng: Random, scene: Scene) -> tuple[str, str]:
    return (
        tell_place(rng, scene.place) if scene.place else "",
        tell_time(rng, scene.time) if scene.time else "",
    )


def ask(rng: Random, scene: Scene, role: str) -> str:
    """A question for one role of the scene; what the scene has beside it may be mentioned or not."""
    verb, many = rng.choice(scene.verb), scene.agent.is_plural
    patient = tell_phrase(rng, scene.patient) if scene.patient else ""
    place, time = _circumstances(rng, scene.having(role, None) if role in ("place", "time") else scene)
    place, time = (part if rng.random() < 0.5 else "" for part in (place, time))
    if role == "agent":
        finite = past(verb) if scene.tense == "past" else third(verb)
        words = ["who" if scene.agent.category == "person" else "what", finite, patient]
    else:
        word = {"place": "where", "time": "when", "verb": "why"}.get(role)
        if role == "patient":
            assert scene.patient is not None
            word, patient = "who" if scene.patient.category == "person" else "what", ""
        words = [str(word), do(scene.tense, many), tell_phrase(rng, scene.agent), verb, patient]
    return " ".join(filter(None, (*words, place, time, "?")))


def describe(rng: Random, polarity: bool, *, negation: float = 0.25) -> str:
    """A predicate of the given polarity, such as `really charming` or `not dull`."""
    if rng.random() < negation:
        return f"{rng.choice(NEGATIONS)} {rng.choice(BAD if polarity else GOOD)[0]}"
    adjective = rng.choice(GOOD if polarity else BAD)[0]
    return f"{rng.choice(INTENSIFIERS)} {adjective}" if rng.random() < 0.4 else adjective


def feel(rng: Random, polarity: bool, topic: str, *, negation: float = 0.25) -> str:
    """A clause in which someone likes the topic, or does not."""
    if rng.random() < negation:
        return f"{rng.choice(REVIEWERS)} did not {rng.choice(DISLIKES if polarity else LIKES)[0]} {topic}"
    return f"{rng.choice(REVIEWERS)} {past(rng.choice(LIKES if polarity else DISLIKES)[0])} {topic}"


def opine(rng: Random, polarity: bool) -> str:
    """A review sentence whose overall polarity is given; where it has two sides the main one decides."""
    topic = f"the {rng.choice(rng.choice(TOPICS))}"
    aspect = f"the {rng.choice(rng.choice(ASPECTS))}"
    main = f"{topic} was {describe(rng, polarity)}" if rng.random() < 0.6 else feel(rng, polarity, topic)
    shape = rng.random()
    if shape < 0.4:
        return f"{main} ."
    if shape < 0.6:
        return f"{main} and {aspect} was {describe(rng, polarity)} ."
    other = f"{aspect} was {describe(rng, not polarity)}"
    if shape < 0.74:
        return f"although {other} , {main} ."
    if shape < 0.88:
        return f"{other} , but {main} ."
    return f"{main} , although {other} ."
