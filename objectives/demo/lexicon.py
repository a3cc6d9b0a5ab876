"""The words of the demo language: concepts with synonyms, categories, antonyms and their inflections.

Data only; how words become sentences is `objectives.demo.language`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping

Concept = tuple[str, ...]
"""The words of one meaning, used interchangeably."""


def _concepts(text: str) -> tuple[Concept, ...]:
    return tuple(tuple(word.split("/")) for word in text.split())


def _opposites(text: str) -> dict[Concept, Concept]:
    """`a/b=c d=e` as a map in both directions."""
    pairs = [tuple(_concepts(pair.replace("=", " "))) for pair in text.split()]
    return {one: other for a, b in pairs for one, other in ((a, b), (b, a))}


GENRES: Mapping[str, Mapping[str, tuple[Concept, ...]]] = {
    "village": {
        "person": _concepts(
            "farmer/grower teacher/instructor doctor/physician child/kid baker judge painter/artist nurse "
            "student/pupil neighbour"
        ),
        "animal": _concepts("dog/hound cat rabbit/bunny pig/hog horse cow goat hen fox wolf"),
        "vehicle": _concepts("car/automobile truck/lorry bicycle/bike wagon/cart tractor"),
        "dish": _concepts("cake soup/broth pie/pastry sandwich salad"),
        "tool": _concepts("hammer knife/blade rope/cord bucket/pail lamp/lantern"),
        "garment": _concepts("coat/jacket hat/cap shirt scarf/shawl boot"),
    },
    "harbour": {
        "person": _concepts(
            "sailor/seaman captain/skipper merchant/trader soldier/trooper guard/sentry pirate"
        ),
        "animal": _concepts("whale seal crab turtle/tortoise gull/seagull shark"),
        "vehicle": _concepts("boat/vessel ferry raft/float barge"),
        "dish": _concepts("stew/casserole roll/bun pudding"),
        "tool": _concepts("anchor net/mesh compass hook"),
        "garment": _concepts("cloak/cape glove/mitten belt"),
    },
}
"""Genre -> category (which is also the hypernym) -> its concepts."""

ANIMATE = ("person", "animal")
THINGS = ("vehicle", "dish", "tool", "garment")

TOWARDS_ANIMATE = _concepts(
    "chase/pursue follow/trail greet/welcome help/assist hinder/obstruct scare/frighten watch/observe "
    "praise/applaud blame/accuse ignore/neglect comfort/console visit"
)
TOWARDS_THINGS = _concepts(
    "buy/purchase sell/trade find/discover lose/misplace repair/mend/fix damage/wreck carry/haul clean/wash "
    "borrow return lift/raise lower admire inspect/examine"
)
INTRANSITIVE = _concepts(
    "sleep/doze work/labour laugh/giggle weep/cry arrive depart/leave wait rest dance shout/yell"
)
OPPOSITE_VERBS = _opposites(
    "help/assist=hinder/obstruct praise/applaud=blame/accuse scare/frighten=comfort/console "
    "buy/purchase=sell/trade find/discover=lose/misplace repair/mend/fix=damage/wreck borrow=return "
    "lift/raise=lower laugh/giggle=weep/cry arrive=depart/leave work/labour=rest"
)

OPPOSITE_ADJECTIVES = _opposites(
    "big/large/huge=small/little/tiny old/aged=new/modern strong/sturdy=fragile/delicate "
    "clean/spotless=dirty/filthy wet/soaked=dry heavy/weighty=light"
)
OPPOSITE_TEMPERS = _opposites(
    "brave/bold=timid/shy rich/wealthy=poor/needy quick/fast=slow/sluggish quiet/silent=noisy/loud "
    "happy/glad=sad/unhappy hungry/starving=full"
)
COLOURS = _concepts("red/crimson blue/azure green white black")
PLACES = _concepts(
    "in~garden/yard near~river/stream at~market/bazaar in~forest/woods behind~barn/stable at~school "
    "in~town/city near~bridge on~hill on~street/road in~kitchen at~harbour/port on~beach/shore in~cave/cavern"
)
"""The preposition is part of each place's first word."""
TIMES = _concepts(
    "yesterday last~week/a~week~ago this~morning/today at~night/after~dark at~noon/at~midday in~spring "
    "in~winter on~monday on~friday"
)
QUANTITIES = _concepts("the a two some/several many/numerous")

TOPICS = _concepts("film/movie book/novel play/drama song/tune show game concert story/tale")
ASPECTS = _concepts("plot/storyline cast acting music/score ending/finale script pace humour")
REVIEWERS = ("i", "we", "they", "the critics", "the viewers")
GOOD = _concepts(
    "good great wonderful brilliant superb charming delightful lovely funny excellent enjoyable beautiful "
    "gripping splendid touching fresh amusing elegant inspired memorable"
)
BAD = _concepts(
    "bad awful terrible dull boring dreadful clumsy tedious lame stale ugly horrible messy lazy pointless "
    "bland weak annoying shallow forgettable"
)
LIKES = _concepts("enjoy love adore like recommend")
DISLIKES = _concepts("hate loathe dislike regret despise")
INTENSIFIERS = ("very", "really", "truly", "quite", "rather", "so")
NEGATIONS = ("not", "never", "hardly", "far from", "anything but")

CAUSES: tuple[tuple[Concept, tuple[str, ...], tuple[str, ...]], ...] = (
    (("chase", "pursue"), ("hungry", "angry", "fierce"), ("frightened", "injured", "lost")),
    (("help", "assist"), ("kind", "generous", "gentle"), ("injured", "lost", "tired")),
    (("blame", "accuse"), ("angry", "unfair", "bitter"), ("guilty", "careless", "rude")),
    (("praise", "applaud"), ("pleased", "generous", "kind"), ("skilful", "helpful", "clever")),
    (("comfort", "console"), ("kind", "gentle", "caring"), ("frightened", "lonely", "upset")),
    (("follow", "trail"), ("curious", "suspicious", "loyal"), ("suspicious", "mysterious", "famous")),
    (("ignore", "neglect"), ("busy", "proud", "bitter"), ("rude", "annoying", "noisy")),
    (("visit",), ("curious", "lonely", "caring"), ("famous", "sick", "upset")),
)
"""A verb, what its doer is "because", and what the one it is done to is "because"."""

_PLURALS = {"child": "children", "person": "people", "scarf": "scarves", "knife": "knives", "wolf": "wolves",
            "seaman": "seamen", "fox": "foxes"}  # fmt: skip
_PASTS = {"buy": "bought", "sell": "sold", "find": "found", "lose": "lost", "sleep": "slept", "weep": "wept",
          "leave": "left", "trail": "trailed", "visit": "visited"}  # fmt: skip


def plural(noun: str) -> str:
    if noun in _PLURALS:
        return _PLURALS[noun]
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    return noun[:-1] + "ies" if noun[-1] == "y" and noun[-2] not in "aeiou" else noun + "s"


def third(verb: str) -> str:
    """The third person singular of the present."""
    if verb.endswith(("s", "x", "ch", "sh")):
        return verb + "es"
    return verb[:-1] + "ies" if verb[-1] == "y" and verb[-2] not in "aeiou" else verb + "s"


def past(verb: str) -> str:
    """The past, which is also the participle for every verb here."""
    if verb in _PASTS:
        return _PASTS[verb]
    if verb.endswith("e"):
        return verb + "d"
    return verb[:-1] + "ied" if verb[-1] == "y" and verb[-2] not in "aeiou" else verb + "ed"
