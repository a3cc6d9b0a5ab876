"""The report in a real browser: drawn, legible at every width, in both themes and on paper, no network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import synthetic
from browser import OVERLAPPING_LABELS, Watched, chromium
from test_report_studies import two_studies

from study.analysis.analyse import analyse
from study.report import write

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MODELS, TASKS = 4, 9


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four models of 12 and 24 layers on nine tasks, every depth, two rates."""
    table = synthetic.table(rates=(2e-5, 4e-5), seeds=2)
    return write(table, analyse(table, draws=100), tmp_path_factory.mktemp("report"))[0]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model on one task."""
    table = synthetic.table(models=("bert-base",), tasks=("rte",), rates=(2e-5, 4e-5), seeds=3)
    return write(table, analyse(table, draws=100), tmp_path_factory.mktemp("small"))[0]


@pytest.fixture(scope="module")
def desktop(browser: Browser, report: Path) -> Iterator[Watched]:
    watched = Watched(browser)
    watched.open_report(report)
    yield watched
    watched.close()


def test_every_open_figure_is_drawn_with_its_lines(desktop: Watched) -> None:
    drawn = desktop.page.eval_on_selector_all(
        ".plot",
        """plots => plots.filter(p => !p.closest('details:not([open])')).map(p => [
            p.dataset.figure,
            p.querySelectorAll('.main-svg .scatterlayer path.js-line, .main-svg image').length])""",
    )
    assert len(drawn) >= TASKS + MODELS + MODELS + TASKS
    assert [name for name, lines in drawn if lines == 0] == []
    by_task = dict(drawn)["quality-0"]
    assert by_task >= MODELS


def test_nothing_is_requested_and_nothing_goes_wrong(desktop: Watched, report: Path) -> None:
    assert desktop.requested_elsewhere(report.resolve().as_uri()) == []
    assert desktop.requests, "the page itself was not seen: the watch is broken"
    assert desktop.errors == []


def test_the_page_opens_with_the_answer(desktop: Watched) -> None:
    header = desktop.page.inner_text("header")
    assert "RECORDED" in header
    assert header.count("fine-tune the last") == MODELS


@pytest.mark.parametrize("width", [1280, 390])
def test_labels_never_overlap_and_the_page_never_scrolls_sideways(desktop: Watched, width: int) -> None:
    desktop.page.set_viewport_size({"width": width, "height": 900})
    desktop.page.wait_for_function(
        """() => [...document.querySelectorAll('.plot:has(.main-svg)')].every(p =>
            Math.abs(p._fullLayout.width - p.getBoundingClientRect().width) < 2)"""
    )
    assert desktop.page.evaluate(OVERLAPPING_LABELS) == []
    assert desktop.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1280, 1600])
def test_figures_use_the_width_of_a_desktop(browser: Browser, small: Path, report: Path, width: int) -> None:
    watched = Watched(browser, width=width)
    for path in (small, report):
        page = watched.open_report(path)
        unused = page.evaluate(
            """() => [...document.querySelectorAll('.panels')].filter(p => p.offsetParent).map(p => {
                const room = p.closest('main').getBoundingClientRect();
                const row = [...p.children].map(e => e.getBoundingClientRect());
                const beside = p.closest('.block').nextElementSibling;
                const right = Math.max(...row.map(r => r.right), ...(beside?.matches('.beside')
                    && beside.getBoundingClientRect().top === p.closest('.block').getBoundingClientRect().top
                    ? [beside.getBoundingClientRect().right] : []));
                const pad = parseFloat(getComputedStyle(p.closest('main')).paddingRight);
                return Math.round(room.right - pad - right); })"""
        )
        assert unused
        assert max(unused) <= 2
    watched.close()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every column of the operating points: gaps, collapses, a task without an answer, long metric names."""
    found = synthetic.table(
        models=("bert-base",),
        tasks=("cola", "stsb", "rte", "wnli", "mrpc"),
        depths=(0, 6, 8, 10, 12),
        seeds=5,
    )
    cola = found["task"].eq("cola") & found["seed"].eq(5)
    found.loc[cola, "score"] = 0.001
    found.loc[found["task"].eq("wnli"), "score"] = 0.4
    return write(found, analyse(found, draws=100), tmp_path_factory.mktemp("crowded"))[0]


def test_no_table_of_operating_points_is_cut_off_on_a_laptop(
    browser: Browser, report: Path, crowded: Path
) -> None:
    for path in (report, crowded):
        watched = Watched(browser, width=1280)
        page = watched.open_report(path)
        page.eval_on_selector_all("details", "all => all.forEach(fold => { fold.open = true; })")
        tables = "[id^=table-operating_points], #table-models, #table-settling"
        cut = page.eval_on_selector_all(
            tables,
            """all => all.map(t => [t.id, t.getBoundingClientRect().right
                - t.parentElement.getBoundingClientRect().right]).filter(([, over]) => over > 1)""",
        )
        assert cut == []
        titles = page.inner_text("#table-operating_points_90 thead").lower()
        watched.close()
    assert "learned" in titles
    assert "sustained" in titles


def test_the_score_map_carries_numbers_where_they_fit_and_names_the_full_model(
    browser: Browser, small: Path
) -> None:
    found = {}
    for width in (1280, 390):
        watched = Watched(browser, width=width)
        page = watched.open_report(small)
        plot = page.locator("[data-figure='depth-rate-0']")
        found[width] = plot.locator(".heatmap-label").all_text_contents()
        assert plot.locator(".xtick text").first.text_content() == "full"
        watched.close()
    assert len(found[1280]) == 26
    assert all(0 < float(text) < 1 for text in found[1280])
    assert found[390] == []


def test_the_overlap_check_sees_an_overlap(desktop: Watched) -> None:
    desktop.page.evaluate(
        """() => { const [one, other] = document.querySelectorAll('.plot .xtick text');
        window.moved = [other, other.getAttribute('transform')];
        const from = other.getBoundingClientRect(), to = one.getBoundingClientRect();
        const shift = `translate(${to.left - from.left},0)`;
        other.setAttribute('transform', `${shift} ${other.getAttribute('transform') || ''}`); }"""
    )
    assert desktop.page.evaluate(OVERLAPPING_LABELS) != []
    desktop.page.evaluate("() => window.moved[0].setAttribute('transform', window.moved[1] || '')")


def test_figures_follow_the_theme(browser: Browser, small: Path) -> None:
    watched = Watched(browser, color_scheme="light")
    page = watched.open_report(small)
    look = """() => [getComputedStyle(document.body).backgroundColor,
        getComputedStyle(document.querySelector('.plot .xtick text')).fill,
        getComputedStyle([...document.querySelectorAll('.plot path.js-line')].at(-1)).stroke]"""
    light = page.evaluate(look)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.querySelector('.plot').dataset.theme === 'dark'")
    watched.wait_drawn()
    dark = page.evaluate(look)
    assert all(here != there for here, there in zip(light, dark, strict=True))
    assert light[0] == "rgb(255, 255, 255)"
    watched.close()


def test_a_folded_chart_is_drawn_when_it_is_opened(desktop: Watched) -> None:
    fold = desktop.page.locator("details", has_text="Score by depth and learning rate")
    assert fold.locator(".main-svg").count() == 0
    fold.locator("summary").click()
    desktop.wait_drawn()
    desktop.page.wait_for_function(
        "document.querySelectorAll('details[open] .plot .heatmaplayer image').length === 36"
    )


def test_on_paper_figures_stay_within_their_panels(browser: Browser, small: Path) -> None:
    watched = Watched(browser, color_scheme="dark")
    page = watched.open_report(small)
    pdf = page.pdf(format="A4", print_background=True)
    assert pdf.startswith(b"%PDF")
    page.set_viewport_size({"width": 690, "height": 900})
    page.emulate_media(media="print")
    wider = page.evaluate(
        """() => [...document.querySelectorAll('.plot:has(.main-svg)')].filter(p => {
            const panel = p.parentElement.getBoundingClientRect();
            const drawing = p.querySelector('.main-svg').getBoundingClientRect();
            return drawing.right > panel.right + 1 || drawing.width < 0.9 * panel.width; }).length"""
    )
    assert wider == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    watched.close()


@pytest.mark.parametrize("width", [1200, 390])
def test_two_studies_of_one_task_are_told_apart_on_every_screen(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    table = two_studies()
    watched = Watched(browser, width=width)
    page = watched.open_report(write(table, analyse(table, draws=100), tmp_path)[0])
    assert page.locator(".answer p > b").all_inner_texts() == [
        "tiny (grid)",
        "tiny (adaptive)",
    ]
    strokes = page.eval_on_selector_all(
        "[data-figure='quality-0'] path.js-line", "lines => lines.map(line => getComputedStyle(line).stroke)"
    )
    assert len(set(strokes) - {"none"}) >= 2
    assert page.evaluate(OVERLAPPING_LABELS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    watched.close()
