"""Figures say what the analysis says, in colours everybody can tell apart, and Plotly accepts them."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean

import pandas as pd
import pytest
import synthetic

from objectives.contract import Cell
from study.analysis import train_sizes as low_resource
from study.analysis.analyse import Analysis, analyse
from study.analysis.costs import costs
from study.reporting import figure_costs, figure_quality, figure_rates, figure_runs, names, theme
from study.reporting.composite import composite, single
from study.reporting.content import document
from study.reporting.document import Chart, Figure
from study.reporting.series import Series
from study.trials.provenance import LearningCurve
from study.trials.trial_table import normalise


def small_table(scores: dict[tuple[int, float], list[float]], **columns: object) -> pd.DataFrame:
    """(frozen layers, rate) -> one score per seed, for a model of four layers."""
    rows = [
        {
            "task": "rte",
            "model": "tiny",
            "total_layers": 4,
            "frozen_layers": depth,
            "learning_rate": rate,
            "seed": seed,
            "train_size": None,
            "state": "COMPLETE",
            "metric": "accuracy",
            "score": score,
            **columns,
        }
        for (depth, rate), runs in scores.items()
        for seed, score in enumerate(runs, 1)
    ]
    return normalise(pd.DataFrame(rows), source="here")


SCORES = {
    (0, 1e-5): [0.70, 0.80],
    (0, 2e-5): [0.60, 0.70],
    (2, 1e-5): [0.72, 0.74],
    (2, 2e-5): [0.74, 0.76],
    (4, 1e-5): [0.52, 0.54],
}


@pytest.fixture(scope="module")
def tiny() -> Analysis:
    return analyse(small_table(SCORES), draws=200)


@pytest.fixture(scope="module")
def large() -> Analysis:
    return analyse(synthetic.table(rates=(2e-5, 4e-5), seeds=2), draws=50)


def lines(figure: Figure) -> list[dict]:  # type: ignore[type-arg]
    return [trace for trace in figure["data"] if "lines" in trace["mode"] and "fill" not in trace]


def test_quality_shows_relative_scores_with_bands_and_the_answer_ringed(tiny: Analysis) -> None:
    chart = figure_quality.by_task(tiny, tiny.curves)
    (panel,) = chart.panels
    (line,) = lines(panel.figure)
    assert line["x"] == [0.0, 2.0, 4.0]
    assert line["y"] == pytest.approx([1.0, 1.0, 0.53 / 0.75])
    (band,) = [trace for trace in panel.figure["data"] if trace.get("fill") == "toself"]
    assert len(band["x"]) == 6
    ring = panel.figure["data"][-1]
    assert (ring["x"], ring["y"]) == ([2.0], pytest.approx([1.0]))
    floor = [shape for shape in panel.figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert floor[0]["y1"] == pytest.approx(146 / 277 / 0.75), "RTE's majority class"


def test_a_single_run_has_the_others_noise_and_runs_without_noise_no_band() -> None:
    def bands(scores: dict[tuple[int, float], list[float]]) -> list[list[float]]:
        analysis = analyse(small_table(scores), draws=200)
        (panel,) = figure_quality.by_task(analysis, analysis.curves).panels
        return [sorted(set(trace["x"])) for trace in panel.figure["data"] if trace.get("fill")]

    assert bands(SCORES | {(3, 1e-5): [0.70]}) == [[0.0, 2.0, 3.0, 4.0]]
    assert bands({cell: runs[:1] for cell, runs in SCORES.items()}) == []


def test_tasks_without_a_full_model_are_left_out_of_relative_figures() -> None:
    analysis = analyse(small_table({(2, 1e-5): [0.7, 0.8]}), draws=50)
    assert figure_quality.by_task(analysis, analysis.curves).panels == ()


def test_the_depth_by_rate_map_marks_the_chosen_rate_and_leaves_gaps_empty(tiny: Analysis) -> None:
    chart = figure_rates.depth_by_rate(tiny.curves)
    assert chart is not None
    figure = chart.panels[0].figure
    (heat,) = figure["data"]
    assert heat["z"][0] == pytest.approx([0.75, 0.73, 0.53])
    assert heat["z"][1][:2] == pytest.approx([0.65, 0.75])
    assert heat["z"][1][2] is None
    assert heat["text"] == [["0.750", "0.730", "0.530"], ["0.650", "0.750", ""]]
    frames = [(shape["x0"] + 0.5, shape["y0"] + 0.5) for shape in figure["layout"]["shapes"]]
    assert frames == [(0, 0), (1, 1), (2, 0)]
    assert figure["layout"]["xaxis"]["ticktext"] == ["full", "2", "4"]


def test_numbers_in_narrow_squares_are_left_out() -> None:
    deep = {(depth, rate): [0.7] for depth in range(41) for rate in (1e-5, 2e-5)}
    wide, narrow = (
        figure_rates.depth_by_rate(analyse(small_table(scores, total_layers=40), draws=20).curves)
        for scores in (SCORES, deep)
    )
    assert wide is not None
    assert narrow is not None
    for draw in (composite, lambda chart: single(chart, 0)):
        assert "texttemplate" in draw(wide)["data"][0]
        assert "texttemplate" not in draw(narrow)["data"][0]
    assert "texttemplate" in narrow.panels[0].figure["data"][0], "the page decides by its own width"


def test_the_first_and_the_last_depth_are_always_named() -> None:
    for depths in (range(1), range(7), range(13), range(25), range(26), range(48), (-1, 0, *range(5, 33))):
        for most in (8, 9, 13):
            ordered, places, labels = names.depth_ticks(depths, most)
            assert labels[0] == "full"
            assert places[-1] == len(ordered) - 1
            assert len(places) <= most + 1
            assert len(places) < 3 or places[1] - places[0] >= places[2] - places[1]
            assert len(set(labels)) == len(labels)


def test_cost_axes_end_near_their_data() -> None:
    table = synthetic.table(models=("bert-base",), tasks=("rte",), rates=(2e-5,), seeds=2)
    analysis = analyse(table, draws=20)
    (chart,) = figure_costs.charts(analysis.curves, costs(table, analysis))
    for panel in chart.panels:
        low, high = panel.figure["layout"]["xaxis"]["range"]
        shares = [x for trace in panel.figure["data"] for x in trace["x"]]
        span = max(shares) - min(shares)
        assert 0 <= min(shares) - low <= 0.1 * span
        assert 0 < high - max(shares) <= 0.1 * span


def test_a_name_is_drawn_as_it_is_written() -> None:
    nasty = "<a href='http://evil.example'>%{x}</a>"
    table = small_table(SCORES, model=nasty, metric=nasty, task=nasty)
    content = document(table, analyse(table, draws=20))
    for chart in content.charts:
        for figure in (composite(chart), single(chart, 0), *(panel.figure for panel in chart.panels)):
            text = str(figure)
            assert "<a href" not in text
            assert "%{x}</a" not in text


def test_one_rate_only_has_no_map() -> None:
    analysis = analyse(small_table({(0, 1e-5): [0.7, 0.8], (4, 1e-5): [0.6, 0.7]}), draws=50)
    assert figure_rates.depth_by_rate(analysis.curves) is None
    assert figure_rates.chosen_rates(analysis.curves) is None


def test_best_rate_per_depth_has_a_row_per_task_and_flags_edges(large: Analysis) -> None:
    chart = figure_rates.chosen_rates(large.curves)
    assert chart is not None
    assert [panel.label for panel in chart.panels] == list(synthetic.MODELS) or len(chart.panels) == 4
    heat, dots = chart.panels[0].figure["data"]
    rows = chart.panels[0].figure["layout"]["yaxis"]["ticktext"]
    assert rows[::-1][:3] == ["CoLA", "SST-2", "MRPC"]
    assert {value for row in heat["z"] for value in row} == {0, 1}
    flagged = sum(d.rate_edge is not None for c in large.curves if c.model == "bert-base" for d in c.depths)
    assert len(dots["x"]) == flagged > 9


def test_cost_points_on_the_front_are_filled(tiny: Analysis) -> None:
    shares = {0: 100, 2: 50, 4: 10}
    table = small_table(SCORES)
    table["trainable_parameters"] = [shares[depth] for depth in table["frozen_layers"]]
    table["total_parameters"] = 100
    table["train_seconds"] = [{0: 10.0, 2: 12.0, 4: 2.0}[depth] for depth in table["frozen_layers"]]
    analysis = analyse(table, draws=50)
    (chart,) = figure_costs.charts(analysis.curves, costs(table, analysis))
    assert [panel.label for panel in chart.panels] == ["Training time", "Parameters trained"]
    seconds, parameters = (panel.figure["data"][0] for panel in chart.panels)
    assert seconds["x"] == pytest.approx([1.0, 1.2, 0.2])
    # Depth 2 scores as well as the full model: it beats it on parameters and loses on seconds.
    assert seconds["marker"]["symbol"] == ["circle", "circle-open", "circle"]
    assert parameters["marker"]["symbol"] == ["circle-open", "circle", "circle"]


def test_every_run_is_a_dot_and_the_best_mean_stands_out() -> None:
    table = synthetic.table(
        models=("roberta-base",),
        tasks=("sst2",),
        rates=(5e-5,),
        train_sizes=(50, 100),
        depths=(-1, 0, 2, 12),
        failures=False,
    )
    analysis = analyse(table, draws=50)
    (chart,) = figure_runs.low_resource(low_resource.sized(analysis.curves), Series(analysis.curves))
    assert [panel.label for panel in chart.panels] == ["50 examples", "100 examples"]
    for panel, curve in zip(chart.panels, analysis.curves, strict=True):
        (dots,) = panel.figure["data"]
        assert len(dots["y"]) == 4 * 5
        means = [s for s in panel.figure["layout"]["shapes"] if s.get("xref") != "x domain"]
        best = [shape["y0"] for shape in means if shape["line"]["color"] == "theme:s1"]
        assert best == [max(d.score for d in curve.depths if d.score is not None)]


def test_learning_curves_are_means_over_seeds_at_the_chosen_rate(tiny: Analysis) -> None:
    def run(depth: int, rate: float, seed: int, *scores: float) -> LearningCurve:
        cell = Cell(depth, rate, seed)
        return LearningCurve("tiny", "rte", "accuracy", cell, (1.0, 2.0), scores, (0.5, 0.4))

    runs = [run(2, 2e-5, 1, 0.5, 0.6), run(2, 2e-5, 2, 0.7, 0.8), run(2, 1e-5, 1, 0.0, 0.0)]
    chart = figure_runs.learning_curves(tiny.curves, runs)
    assert chart is not None
    (line,) = chart.panels[0].figure["data"]
    assert line["y"] == pytest.approx([fmean([0.5, 0.7]), fmean([0.6, 0.8])])
    assert figure_runs.learning_curves(tiny.curves, []) is None


def every_chart(large: Analysis) -> list[Chart]:
    table = synthetic.table(rates=(2e-5, 4e-5), seeds=2)
    return document(table, large).charts


@pytest.mark.slow
def test_plotly_accepts_every_figure_alone_and_together(large: Analysis) -> None:
    import plotly.graph_objects as go

    charts = every_chart(large)
    assert len(charts) == 7
    for chart in charts:
        go.Figure(composite(chart, badges=("demo",)))
        shown = go.Figure(single(chart, 0, badges=("demo",)))
        assert shown.layout.title.text.startswith("DEMO · ")
        for panel in chart.panels:
            go.Figure(theme.resolve(panel.figure, "dark"))


@pytest.mark.slow
def test_panels_of_a_composite_do_not_overlap(large: Analysis) -> None:
    for chart in every_chart(large):
        layout = composite(chart)["layout"]
        axes = [name.removeprefix("xaxis") for name in layout if name.startswith("xaxis")]
        assert len(axes) == len(chart.panels)
        boxes = [(layout[f"xaxis{n}"]["domain"], layout[f"yaxis{n}"]["domain"]) for n in axes]
        for (x1, y1), (x2, y2) in combinations(boxes, 2):
            assert x1[1] < x2[0] or x2[1] < x1[0] or y1[1] < y2[0] or y2[1] < y1[0]


def test_figure_names_are_unique(large: Analysis) -> None:
    panels = [panel.name for chart in every_chart(large) for panel in chart.panels]
    assert len(panels) == len(set(panels))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", ["light", "dark"])
def test_lines_and_words_stand_out_from_the_ground(name: str) -> None:
    colours = theme.THEMES[name]
    ground = luminance(colours["paper"])

    def contrast(colour: str) -> float:
        lower, higher = sorted((luminance(colour), ground))
        return (higher + 0.05) / (lower + 0.05)

    assert min(contrast(colours[f"s{i}"]) for i in range(theme.COLOURS)) >= 3
    assert min(contrast(colours[word]) for word in ("ink", "muted")) >= 4.5


@pytest.mark.parametrize("name", ["light", "dark"])
def test_models_are_told_apart_by_the_colour_blind(name: str) -> None:
    """The first four colours as seen without red or green cones (Machado, Oliveira and Fernandes 2009)."""
    seen = {
        "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
        "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    }
    for matrix in seen.values():
        colours = []
        for i in range(4):
            hexadecimal = theme.THEMES[name][f"s{i}"]
            channels = [int(hexadecimal[k : k + 2], 16) / 255 for k in (1, 3, 5)]
            colours.append([sum(w * c for w, c in zip(row, channels, strict=True)) for row in matrix])
        distances = [
            sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) ** 0.5 for x, y in combinations(colours, 2)
        ]
        assert min(distances) > 0.25


def test_without_any_colour_dash_and_symbol_tell_all_tasks_apart() -> None:
    looks = [(theme.style(i).dash, theme.style(i).symbol) for i in range(9)]
    assert len(set(looks)) == 9


def test_tokens_resolve_to_colours_of_the_theme() -> None:
    assert theme.colour("theme:s0", "light") == theme.LIGHT["s0"]
    assert theme.colour("theme:s0/50", "light") == "rgba(0,114,178,0.5)"
    assert theme.colour("theme:~0.000", "dark") == "rgb(63,102,168)"
    assert theme.colour("theme:~1.000", "dark") == "rgb(251,224,79)"
    resolved = theme.resolve({"name": "~/models/x", "line": {"color": "theme:ink"}}, "dark")
    assert resolved == {"name": "~/models/x", "line": {"color": theme.DARK["ink"]}}


@pytest.mark.parametrize("layers", [6, 12, 24, 48])
def test_depth_labels_are_never_too_many_and_name_the_deepest(layers: int) -> None:
    ordered, places, labels = names.depth_ticks([-1, *range(layers + 1)], most=9)
    assert ordered[:3] == [0, -1, 1]
    assert len(places) == len(labels) <= 9
    assert labels[-1] == str(layers)
