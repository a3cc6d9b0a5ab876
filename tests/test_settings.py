"""Settings are declared once: what a field says of itself is what every reader of it enforces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from objectives import settings
from objectives.contract import Recipe, UsageError
from objectives.settings import Declared, declared, setting


@dataclass(frozen=True, kw_only=True)
class Example:
    count: int = setting(3, help="how many", least=1, most=10)
    share: float = setting(0.5, help="which part", above=0, below=1)
    mode: Literal["a", "b", "c"] = setting("a", help="which way")
    quick: bool = setting(False, help="in a hurry")
    sizes: tuple[int, ...] | None = setting(
        None, help="a list", least=0, read=lambda text: tuple(int(part) for part in text.split(","))
    )
    width: int = setting(8, help="or auto", least=1, words=("auto",))
    inner: int = 0

    def __post_init__(self) -> None:
        settings.check(self)


def of(name: str) -> Declared:
    return next(item for item in declared(Example) if item.name == name)


def test_only_declared_fields_are_settings_and_keep_their_order() -> None:
    assert [item.name for item in declared(Example)] == ["count", "share", "mode", "quick", "sizes", "width"]
    assert of("sizes").optional
    assert of("mode").choices == ("a", "b", "c")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "10", 10),
        ("share", "0.25", 0.25),
        ("mode", "b", "b"),
        ("quick", "yes", True),
        ("sizes", "1,2", (1, 2)),
        ("width", "auto", "auto"),
    ],
)
def test_text_is_read_by_the_declaration(name: str, text: str, value: object) -> None:
    assert of(name).read(text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("count", "11", "--count 11: use a whole number at least 1, at most 10"),
        ("count", "1.5", "--count '1.5': use a whole number at least 1, at most 10"),
        ("count", "9" * 5000, "--count"),
        ("share", "nan", "--share nan: use a number above 0, below 1"),
        ("share", "1e400", "--share inf: use a number above 0, below 1"),
        ("mode", "d", "--mode 'd': use a, b or c"),
        ("quick", "perhaps", "--quick 'perhaps': use true or false"),
        ("sizes", "1,x", "--sizes '1,x': invalid literal"),
        ("sizes", "1,-2", "--sizes -2: use a whole number at least 0"),
        ("width", "0", "--width 0: use auto or a whole number at least 1"),
    ],
)
def test_what_is_out_of_bounds_is_refused_in_one_short_line(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        of(name).read(text)
    assert str(error.value).startswith(message)
    assert len(str(error.value)) < 200
    assert "\n" not in str(error.value)


def test_files_give_typed_values_and_wrong_types_are_refused() -> None:
    assert of("share").accept(0.25) == 0.25
    assert of("sizes").accept([3, 4]) == (3, 4)
    assert of("sizes").accept("3,4") == (3, 4)
    for name, value in (("count", 1.5), ("count", True), ("quick", 1), ("mode", 7)):
        with pytest.raises(UsageError, match=f"--{name}"):
            of(name).accept(value)


def test_an_instance_out_of_bounds_cannot_be_made() -> None:
    with pytest.raises(UsageError, match="--count 0"):
        Example(count=0)
    with pytest.raises(UsageError, match="--epochs nan: use a number above 0"):
        Recipe(epochs=float("nan"))
    with pytest.raises(UsageError, match="--weight-decay -1"):
        Recipe(weight_decay=-1)


def test_every_setting_of_the_recipe_says_what_it_is() -> None:
    assert all(item.about.help for item in declared(Recipe))
    assert {item.name for item in declared(Recipe)} == set(Recipe.__dataclass_fields__)
