import dataclasses
import json
import math
from dataclasses import dataclass

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from core.config import (
    Config,
    ConfigError,
    Knob,
    change,
    find_knob,
    knob,
    knobs,
    make,
    nearest,
    parse_short,
)
from core.methods.table import METHODS, find_method
from core.models.config import BackboneConfig


@dataclass(frozen=True, kw_only=True)
class Oven(Config):
    """One knob of each kind."""

    degrees: float = knob(180.0, "heat", above=0, maximum=300, unit="°C", live=True)
    change: float = knob(0.0, "drift")
    minutes: int = knob(40, "time", minimum=1, maximum=600)
    fan: bool = knob(False, "moving air", live=True)
    shelf: str = knob("middle", "where", choices=("top", "middle", "bottom"))
    note: str = knob("", "what is baked")


CONFIGS = [*(method.config for method in METHODS.values()), BackboneConfig, Oven]

ovens = st.builds(
    Oven,
    degrees=st.floats(0, 300, exclude_min=True),
    change=st.floats(allow_nan=False, allow_infinity=False),
    minutes=st.integers(1, 600),
    fan=st.booleans(),
    shelf=st.sampled_from(["top", "middle", "bottom"]),
    note=st.text(),
)


@given(ovens)
def test_short_comes_back_whatever_the_text_holds(oven):
    assert parse_short(Oven, oven.short()) == oven


@given(ovens)
def test_json_comes_back(oven):
    assert make(Oven, json.loads(json.dumps(oven.to_dict()))) == oven


def test_short_names_only_what_was_changed():
    assert Oven().short() == ""
    assert Oven(degrees=200, fan=True, shelf="top").short() == "degrees=200.0 fan=true shelf=top"
    assert parse_short(Oven, "") == Oven()


def test_to_dict_keeps_defaults_so_that_later_defaults_change_no_saved_run():
    assert Oven(minutes=5).to_dict() == {
        "degrees": 180.0, "change": 0.0, "minutes": 5, "fan": False, "shelf": "middle", "note": ""
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("degrees", " 1e2 ", 100.0), ("degrees", "300", 300.0), ("minutes", "1", 1), ("minutes", "600", 600),
        ("fan", "Yes", True), ("fan", "on", True), ("fan", "1", True), ("fan", "TRUE", True),
        ("fan", "no", False), ("fan", "off", False), ("fan", "0", False), ("fan", " false", False),
        ("shelf", " top ", "top"), ("note", " two  blanks ", " two  blanks "), ("change", "-3", -3.0),
    ],
)  # fmt: skip
def test_text_as_typed_becomes_a_value(name, text, value):
    found = getattr(change(Oven(), name, text), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("degrees", "0", "degrees must be > 0, ≤ 300, not 0"),
        ("degrees", "300.5", "degrees must be > 0, ≤ 300, not 300.5"),
        ("degrees", "hot", "degrees must be a number (> 0, ≤ 300), not 'hot'"),
        ("degrees", "nan", "degrees must be a finite number, not nan"),
        ("change", "-inf", "change must be a finite number, not -inf"),
        ("change", "x", "change must be a number (any number), not 'x'"),
        ("minutes", "0", "minutes must be ≥ 1, ≤ 600, not 0"),
        ("minutes", "601", "minutes must be ≥ 1, ≤ 600, not 601"),
        ("minutes", "1.5", "minutes must be a whole number (≥ 1, ≤ 600), not '1.5'"),
        ("fan", "maybe", "fan must be true or false (true | false), not 'maybe'"),
        ("shelf", "botom", "shelf must be one of top, middle, bottom, not 'botom' (did you mean 'bottom'?)"),
        ("shelf", "xyz", "shelf must be one of top, middle, bottom, not 'xyz'"),
    ],
)  # fmt: skip
def test_wrong_text_is_refused_with_one_line_that_says_what_would_be_right(name, text, said):
    with pytest.raises(ConfigError) as refused:
        change(Oven(), name, text)
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("minutes", True), ("minutes", 1.0), ("minutes", None), ("degrees", True), ("degrees", None),
        ("degrees", math.nan), ("change", math.inf), ("fan", 1), ("shelf", 3), ("note", 3), ("note", None),
        ("degrees", [1.0]), ("degrees", 10**400), ("minutes", 10**400), ("change", -(10**400)),
    ],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_refused_and_named(name, value):
    with pytest.raises(ConfigError, match=f"^{name} must be") as refused:
        make(Oven, {name: value})
    assert "\n" not in str(refused.value)


@given(st.sampled_from(["degrees", "minutes", "fan", "shelf"]), st.text())
def test_any_text_gives_a_value_in_range_or_one_line(name, text):
    try:
        oven = change(Oven(), name, text)
    except ConfigError as refused:
        assert str(refused).startswith(name)
        assert len(str(refused).splitlines()) == 1
    else:
        assert 0 < oven.degrees <= 300
        assert 1 <= oven.minutes <= 600
        assert oven.shelf in ("top", "middle", "bottom")


@given(st.text())
def test_any_short_text_gives_a_config_or_one_line(text):
    try:
        parse_short(Oven, text)
    except ConfigError as refused:
        assert len(str(refused).splitlines()) == 1


@pytest.mark.parametrize("text", ["minutes", "minutes:3", "note='open", "minuts=3", "=3"])
def test_short_text_that_is_none_is_refused(text):
    with pytest.raises(ConfigError):
        parse_short(Oven, text)


def test_an_int_for_a_float_becomes_one():
    assert type(Oven(degrees=200).degrees) is float


def test_an_unknown_knob_names_the_nearest():
    with pytest.raises(ConfigError, match=r"^no knob is called 'minuts' \(did you mean 'minutes'\?\)$"):
        make(Oven, {"minuts": 3})
    with pytest.raises(ConfigError, match=r"^no knob is called 'qqq'$"):
        find_knob(Oven, "qqq")
    assert nearest("minutes", ["seconds", "minutes"]) == " (did you mean 'minutes'?)"
    assert nearest("zzz", ["seconds"]) == ""


def test_a_config_cannot_be_changed_in_place_or_made_wrong():
    oven = Oven()
    with pytest.raises(dataclasses.FrozenInstanceError):
        oven.minutes = 3
    with pytest.raises(ConfigError):
        Oven(minutes=0)
    assert change(oven, "minutes", 5) == Oven(minutes=5)
    assert oven == Oven()


def test_knobs_tell_all_there_is_to_know():
    degrees, change_, minutes, fan, shelf, note = knobs(Oven)
    assert (degrees.name, degrees.type, degrees.default, degrees.help) == ("degrees", float, 180.0, "heat")
    assert (degrees.unit, degrees.live, minutes.live) == ("°C", True, False)
    assert [each.range for each in (degrees, change_, minutes, fan, shelf, note)] == [
        "> 0, ≤ 300", "any number", "≥ 1, ≤ 600", "true | false", "top | middle | bottom", "any text",
    ]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS)
def test_every_default_is_in_range_and_explained(config):
    made = config()
    assert make(config, made.to_dict()) == made
    for each in knobs(config):
        assert each.help
        assert each.type in (int, float, bool, str)
        assert type(each.default) is each.type
        assert each.check(each.default) == each.default


@given(st.data(), st.sampled_from(CONFIGS))
def test_every_method_reads_back_what_it_wrote(data, config):
    values = {}
    for each in knobs(config):
        if each.choices:
            values[each.name] = data.draw(st.sampled_from(each.choices))
        elif each.type is bool:
            values[each.name] = data.draw(st.booleans())
        elif each.type is not str:  # of the texts that a method takes each names something; Oven has any text
            low = each.minimum if each.minimum is not None else each.above if each.above is not None else -1e9
            high = each.maximum if each.maximum is not None else 1e9
            number = st.integers(int(low), int(high)) if each.type is int else st.floats(low, high)
            value = data.draw(number)
            if each.above is None or value > each.above:
                values[each.name] = value
    try:
        made = make(config, values)
    except ConfigError:  # knobs that do not go together
        reject()
    assert parse_short(config, made.short()) == made
    kept = {name: value for name, value in values.items() if not (config is BackboneConfig and value == 0)}
    assert made.to_dict() | kept == made.to_dict()


def test_methods_are_found_by_name_and_the_nearest_is_named():
    assert find_method("ppo").name == "ppo"
    with pytest.raises(ConfigError, match=r"no method is called 'pppo' \(did you mean 'ppo'\?\)"):
        find_method("pppo")


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_a_method_is_whole(method):
    assert METHODS[method.name] is method
    assert method.trains in ("policy", "reward_model")
    assert method.starts_from is None or method.starts_from in METHODS
    assert all((method.title, method.summary, method.when, method.pitfalls))
    assert method.charts
    for chart in method.charts:
        assert all((chart.title, chart.metrics, chart.meaning, chart.misreading))
    assert method.headline in {name for chart in method.charts for name in chart.metrics}


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"minimum": 1, "maximum": 1_000_000}, "≥ 1, ≤ 1,000,000"), ({"above": 0, "maximum": 0.5}, "> 0, ≤ 0.5"),
        ({"maximum": 2**53}, "≤ 9.0072e+15"), ({"minimum": 0.01}, "≥ 0.01"),
    ],
)  # fmt: skip
def test_a_range_is_written_as_a_person_writes_numbers(limits, said):
    assert Knob("x", float, 1.0, "", **limits).range == said
