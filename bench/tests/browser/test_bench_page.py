"""The page of a comparison in a real browser, as a person would use it. Run by `make test-browser`."""

import base64
import json
import struct
import zlib

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait
from tests.browser.conftest import errors, in_view, one, see, show, texts

from fmtc_bench.compare.evidence import FEDERATIONS, compact, first_federations
from fmtc_bench.compare.federations import title as title_of
from fmtc_bench.report.page import render_results, summarise_results

pytestmark = pytest.mark.browser

SCRIPT, IMAGE = "<script>window.hacked = 1<script>", '"><img src=x onerror="window.hacked=1">'
DATA = ["webkb4", "yale", "digits", SCRIPT]
LEVEL = {"fmtc": 0.8, "stsc": 0.6, "usc": 0.7, "kmeans": 0.5, IMAGE: 0.4}


def row(dataset, method, acc, *, trial="default", split=0, status="ok"):
    """A row as `run_cells` gives it."""
    about = {"dataset": dataset, "method": method, "trial": trial, "split": split, "seed": 0, "status": status}
    about |= {"code": "0123", "versions": {"fmtc": "1"}}
    if status != "ok":
        return about
    part = {"acc": acc, "nmi": 1 - acc, "ri": acc / 2, "ari": acc / 4, "ri_one_cluster": 0.01}
    new = {name: value - 0.01 for name, value in part.items()}
    cost = {"seconds_fit": 10 * acc, "peak_memory": 3_000_000, "bytes_up": 10, "bytes_down": 20, "rounds": 5}
    return about | {"train": {"mean": part}, "test": {"mean": new, "acc_frozen": 0.1}, "vote": {"mean": new}} | cost


def picture(width=900, height=300):
    """A grey PNG."""
    lines = zlib.compress((b"\0" + b"\x99" * width) * height)
    parts = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", lines), (b"IEND", b""))
    chunks = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Results of five methods on four data sets with hostile names, an oracle, ablations, a failure and a figure."""
    folder = tmp_path_factory.mktemp("results")
    rng = np.random.default_rng(0)
    rows = [row(data, method, acc + rng.normal(0, 0.02), split=split)
            for data in DATA for method, acc in LEVEL.items() for split in (0, 1)]  # fmt: skip
    rows += [row("yale", "fmtc/align=False", 0.6, split=split) for split in (0, 1)]
    rows += [row(data, "mbc", 0.1, status="failed") for data in DATA]
    rows += [row("yale", "stsc", 0.95, trial="1")]
    (folder / "rows.csv").write_text(compact(rows), encoding="utf-8")
    (folder / "figures").mkdir()
    for name in ("critical_difference_ari", "clouds"):
        (folder / "figures" / f"{name}.png").write_bytes(picture())
    return folder


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A page of test federations, of development data and of a variant."""
    folder = tmp_path_factory.mktemp("tested")
    rng = np.random.default_rng(0)
    level = {"fmtc": 0.8, "fmtc-average": 0.75, "stsc": 0.6, "usc": 0.7, "kmeans": 0.5, "random": 0.1}
    rows = [row(data, method, acc + rng.normal(0, 0.02), split=split)
            for data in (*FEDERATIONS, "yale") for method, acc in level.items() for split in (0, 1)]  # fmt: skip
    behind = first_federations()[0]
    rows = [one for one in rows if (one["dataset"], one["method"]) != (behind, "fmtc")]
    rows += [row(behind, "fmtc", 0.2), row("yale", "fmtc/beta=0", 0.5)]
    (folder / "rows.csv").write_text(compact(rows), encoding="utf-8")
    path = folder / "report.html"
    path.write_text(render_results(summarise_results(folder)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(home):
    path = home / "report.html"
    path.write_text(render_results(summarise_results(home)), encoding="utf-8")
    return path


def choose(driver, name, value):
    in_view(driver, one(driver, f"input[name={name}][value={value}]")).click()


def heads(driver):
    return {button.text: button for button in driver.find_elements(By.CSS_SELECTOR, "#score-table .sort")}


def column(driver, title):
    """What stands in a column of the table of scores, from above, the paper's number left out."""
    return driver.execute_script(
        """const table = document.querySelector('#score-table');
        const at = [...table.querySelectorAll('thead th')].findIndex((head) => head.dataset.title === arguments[0]);
        return [...table.querySelectorAll('tbody tr')].filter((row) => !row.hidden)
          .map((row) => row.cells[at])
          .map((cell) => cell.querySelector('b, bdi, .failed')?.firstChild.textContent ?? cell.textContent);""",
        title,
    )


BY_RANK = ["FMTC", "uSC", "stSC", "k-means alone", IMAGE, "MBC"]  # which failed


# ------------------------------------------------------------------------------------------------------- opening


def test_it_opens_without_errors_and_hostile_names_are_words(opened):
    assert errors(opened) == []
    assert opened.execute_script("return window.hacked") is None
    assert opened.execute_script("return document.images.length") == 2
    assert {SCRIPT, "WebKB4", "Yale"} <= set(heads(opened))
    assert column(opened, "Method") == BY_RANK
    choose(opened, "scope", "all")
    assert "FMTC align=False" in column(opened, "Method")
    assert opened.execute_script("return [...document.images].every((one) => one.complete && one.naturalWidth === 900)")


def test_nothing_goes_to_the_network(opened):
    assert opened.execute_script(
        "return performance.getEntriesByType('resource').every((e) => e.name.startsWith('data:'))"
    )
    outcome = opened.execute_async_script(
        """const done = arguments[0];
        const blocked = new Promise((told) =>
          addEventListener('securitypolicyviolation', (event) => told(event.violatedDirective)));
        fetch('http://127.0.0.1:9/').then(() => done('fetched'), () => blocked.then(done));"""
    )
    assert outcome == "connect-src"
    opened.get_log("browser")


@pytest.mark.parametrize("width", [400, 900, 1400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_every_window_in_both_themes(driver, page, width, theme):
    see(driver, width, theme)
    show(driver, page)
    driver.execute_script("localStorage.clear()")
    show(driver, page)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert driver.execute_script("return document.documentElement.dataset.theme") == theme
    shown = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert shown == {"light": "rgb(244, 246, 248)", "dark": "rgb(16, 21, 26)"}[theme]
    assert one(driver, "#order").is_displayed() == (width == 400)  # there the head of the table is not
    assert errors(driver) == []


def test_a_page_of_very_little_opens_too(driver, tmp_path):
    (tmp_path / "rows.csv").write_text(compact([row("digits", "fmtc", 0.5), row("digits", "kmeans", np.nan)]))
    (tmp_path / "page.html").write_text(render_results(summarise_results(tmp_path)), encoding="utf-8")
    see(driver, 1280, "light")
    show(driver, tmp_path / "page.html")
    assert errors(driver) == []
    assert column(driver, "Digits") == ["49.0", "–"]  # what is no number is not known
    assert driver.find_elements(By.CSS_SELECTOR, "input[name=mode], input[name=scope], #ranks, #figures, #failed") == []


# --------------------------------------------------------------------------------------------------------- using


def test_the_table_sorts_by_click_and_by_keyboard(opened):
    sorted_by = lambda: [  # noqa: E731
        (head.get_attribute("data-title"), head.get_attribute("aria-sort"))
        for head in opened.find_elements(By.CSS_SELECTOR, "#score-table th[aria-sort]")
    ]
    assert sorted_by() == [("Rank", "ascending")]
    in_view(opened, heads(opened)["WebKB4"]).click()
    values = [float(value) for value in column(opened, "WebKB4")[:-1]]  # the last has none
    assert values == sorted(values, reverse=True)
    assert sorted_by() == [("WebKB4", "descending")]
    heads(opened)["WebKB4"].send_keys(Keys.ENTER)
    assert [float(value) for value in column(opened, "WebKB4")[:-1]] == sorted(values)
    assert sorted_by() == [("WebKB4", "ascending")]
    heads(opened)["Method"].send_keys(Keys.SPACE)
    assert column(opened, "Method") == [IMAGE, "FMTC", "k-means alone", "MBC", "stSC", "uSC"]
    heads(opened)["Group"].click()
    assert column(opened, "Group") == sorted(column(opened, "Group"))
    heads(opened)["Seconds"].click()
    seconds = [float(value) for value in column(opened, "Seconds")[:-1]]
    assert seconds == sorted(seconds)  # the quickest first
    assert sorted_by() == [("Seconds", "ascending")]
    assert "Sorted by Seconds, ascending" in one(opened, "#live").get_attribute("textContent")
    choose(opened, "score", "nmi")
    assert sorted_by() == [("Seconds", "ascending")]


def test_switches_change_what_is_shown(opened, home):
    table = summarise_results(home)["table"]
    cells = {(c["method"], c["dataset"], c["mode"]): c for c in table["cells"]}

    def shown(score, part, mode="default"):
        methods = {line["title"]: line["name"] for line in table["methods"]}
        want = {}
        for title in column(opened, "Method"):
            found = cells.get((methods[title], "yale", mode))
            want[title] = f"{100 * found[score][part][0]:.1f}" if found and found["n"] else "failed"
        assert dict(zip(column(opened, "Method"), column(opened, "Yale"), strict=True)) == want
        return want

    assert one(opened, "#shown").text == "ACC on held-out rows, one setting for all data sets; rank over 4 data sets"
    first = shown("acc", "out")
    choose(opened, "score", "nmi")
    assert shown("nmi", "out") != first
    assert column(opened, "Method")[-2:] == ["FMTC", "MBC"]  # here the other way round; a failed one is still last
    choose(opened, "part", "in")
    shown("nmi", "in")
    choose(opened, "score", "ari")
    shown("ari", "in")
    choose(opened, "score", "acc")
    choose(opened, "mode", "oracle")
    assert shown("acc", "in", "oracle") == {"stSC": "95.0"}
    assert "oracle: setting picked by labels" in one(opened, "#shown").text
    assert "ACC on training rows" in one(opened, "#live").get_attribute("textContent")


def test_by_keyboard_a_switch_moves_with_the_arrows(opened):
    in_view(opened, one(opened, "input[name=score]"))
    opened.execute_script("document.querySelector('input[name=score]').focus()")
    outline = "return getComputedStyle(document.querySelector('input[name=score]:checked + span')).outlineStyle"
    ActionChains(opened).send_keys(Keys.ARROW_RIGHT).perform()
    assert one(opened, "#shown").text.startswith("ACC, matching frozen, on held-out rows")
    assert opened.execute_script(outline) == "solid"


def test_the_best_is_marked_and_the_paper_stands_beside(opened):
    best = lambda: opened.execute_script(  # noqa: E731
        "return [...document.querySelectorAll('#score-table td.best')]"
        ".map((c) => [c.parentElement.dataset.method, c.dataset.label])"
    )
    assert sorted(best()) == sorted(["fmtc", title] for title in ("WebKB4", "Yale", "Digits", SCRIPT))
    cell = one(opened, "#score-table tr[data-method=fmtc] td[data-label=WebKB4]")
    assert cell.text.split("\n")[-1].endswith("64.67")
    assert "± " in cell.text
    assert "best" in cell.get_attribute("textContent")
    choose(opened, "part", "in")
    assert one(opened, "#score-table tr[data-method=fmtc] .paper").text.endswith("78.11")
    choose(opened, "score", "ari")
    assert opened.find_elements(By.CSS_SELECTOR, "#score-table .paper") == []


def test_methods_are_found_and_a_data_set_is_chosen(opened):
    one(opened, "#find").send_keys("control")
    assert column(opened, "Method") == ["k-means alone"]
    assert one(opened, "#counted").text == "1 of 6 methods shown"
    choose(opened, "score", "nmi")
    assert column(opened, "Method") == ["k-means alone"]
    one(opened, "#find").clear()
    one(opened, "#find").send_keys("IMG src")
    assert column(opened, "Method") == [IMAGE]
    one(opened, "#find").send_keys(Keys.CONTROL, "a", Keys.DELETE)
    choose(opened, "scope", "all")
    assert one(opened, "#counted").text == "7 methods"
    Select(one(opened, "#dataset")).select_by_visible_text(SCRIPT)
    assert list(heads(opened)) == ["Method", "Group", "Leaves a client", "Rank", SCRIPT, "Seconds"]
    assert "FMTC align=False" not in column(opened, "Method")  # it was not run there
    assert one(opened, "#counted").text == "6 methods"


def test_on_a_phone_a_list_sorts(driver, page):
    see(driver, 400, "light")
    show(driver, page)
    Select(in_view(driver, one(driver, "#order"))).select_by_visible_text("Seconds")
    assert column(driver, "Method") == [IMAGE, "k-means alone", "stSC", "uSC", "FMTC", "MBC"]  # the quickest first
    Select(one(driver, "#order")).select_by_visible_text("Rank")
    assert column(driver, "Method") == BY_RANK
    assert one(driver, "#score-table td[data-label=Yale]").is_displayed()
    see(driver, 1280, "light")


def test_other_tables_sort_too(opened):
    assert texts(opened, "#failed tbody th") == sorted(DATA)
    assert len(texts(opened, "#ablations tbody th")) == 2


# --------------------------------------------------------------------------------------------- test federations


@pytest.fixture
def shown(driver, tested):
    see(driver, 1280, "light")
    show(driver, tested)
    return driver


def test_test_federations_come_first_and_development_is_a_switch_away(shown):
    assert errors(shown) == []
    words = f"ARI on held-out rows, one setting for all data sets; rank over {len(FEDERATIONS)} federations"
    assert one(shown, "#shown").text == words
    titles = [title_of(name) for name in FEDERATIONS]
    assert list(heads(shown)) == ["Method", "Group", "Leaves a client", "Rank", *titles, "Seconds"]
    choose(shown, "scope", "plain")
    assert list(heads(shown)) == ["Method", "Group", "Leaves a client", "Rank", "Yale", "Seconds"]
    choose(shown, "score", "frozen")
    assert one(shown, "#shown").text.startswith("ACC, matching frozen, on held-out rows")
    assert column(shown, "Yale") == ["10.0"] * 6  # as the rows have it
    assert "FMTC beta=0" not in column(shown, "Method")
    choose(shown, "scope", "all")
    assert "FMTC beta=0" in column(shown, "Method")
    assert shown.execute_script("return document.documentElement.scrollWidth") <= 1280


def test_ranks_and_leads_sort(shown):
    def column_of(place):
        cells = shown.find_elements(By.CSS_SELECTOR, f"#rank-ari tbody td:nth-of-type({place})")
        return [float(cell.get_attribute("data-value")) for cell in cells if cell.get_attribute("data-value")]

    means, ranks, leads = 2, 3, 5
    assert column_of(means) == sorted(column_of(means), reverse=True)
    assert len(column_of(ranks)) == 4  # uSC pools rows, random labels are no method
    buttons = shown.find_elements(By.CSS_SELECTOR, "#rank-ari .sort")
    in_view(shown, buttons[3]).click()
    assert column_of(ranks) == sorted(column_of(ranks))
    buttons[5].send_keys(Keys.ENTER)
    assert column_of(leads) == sorted(column_of(leads), reverse=True)
    assert len(column_of(leads)) == 5  # all but FMTC
    assert one(shown, "#rank-ari tr[data-group=ours] th").text == "FMTC"
    assert "best" in one(shown, "#rank-ari td.best").get_attribute("textContent")
    details = shown.find_elements(By.CSS_SELECTOR, "#ranks details")
    in_view(shown, details[-1]).click()
    assert title_of(first_federations()[0]) in details[-1].text
    assert "k-means alone" in details[-1].text


@pytest.mark.parametrize("width", [400, 1280])
def test_ranks_fit_the_window(driver, tested, width):
    see(driver, width, "dark")
    show(driver, tested)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert one(driver, "#rank-acc_frozen tbody td").is_displayed()
    assert errors(driver) == []
    see(driver, 1280, "light")


# -------------------------------------------------------------------------------------------------------- saving


def saved(driver, name):
    path = driver.downloads / name
    WebDriverWait(driver, 10).until(lambda d: path.exists() and path.stat().st_size > 0)
    content = path.read_bytes()
    path.unlink()
    return content


def test_all_cells_are_saved_as_they_were(opened, home):
    in_view(opened, one(opened, "#save-rows")).click()
    assert saved(opened, "rows.csv") == (home / "rows.csv").read_bytes()
    assert errors(opened) == []
    assert one(opened, "#live").get_attribute("textContent") == "Saving rows.csv"


def test_the_table_is_saved_as_it_is_shown(opened):
    choose(opened, "part", "in")
    in_view(opened, heads(opened)["Method"]).click()
    one(opened, "#find").send_keys("paper")
    in_view(opened, one(opened, "#save-table")).send_keys(Keys.ENTER)
    document = json.loads(saved(opened, "acc-in-default.json"))
    assert (document["score"], document["rows"]) == ("acc", "training rows")
    assert [line["method"] for line in document["methods"]] == ["mbc", "stsc"]  # uSC pools rows
    assert document["methods"][0]["datasets"]["yale"] | {"seconds": None} == {
        "mean": None, "sd": None, "paper": 0.3448, "best": False, "trial": "default", "runs": 0, "failed": 1,
        "collapsed": False, "seconds": None,
    }  # fmt: skip
    cells = document["methods"][1]["datasets"]
    assert list(cells) == DATA
    assert cells["webkb4"]["paper"] == 0.6337
    assert 100 * cells["yale"]["mean"] == pytest.approx(float(column(opened, "Yale")[1]), abs=0.051)


# -------------------------------------------------------------------------------------------- themes and readers


def test_the_theme_is_kept(opened, page):
    theme = lambda: opened.execute_script("return document.documentElement.dataset.theme")  # noqa: E731
    one(opened, "#theme").click()
    assert theme() == "dark"
    assert one(opened, "#theme").get_attribute("aria-pressed") == "true"
    show(opened, page)
    assert theme() == "dark"
    one(opened, "#theme").click()
    assert theme() == "light"


def test_all_can_be_done_by_keyboard(opened):
    reached = []
    for _ in range(120):
        ActionChains(opened).send_keys(Keys.TAB).perform()
        reached.append(opened.execute_script(
            "const a = document.activeElement; return a.id || a.name || a.closest('table')?.id || a.tagName"
        ))  # fmt: skip
        if reached[-1] == "BODY":
            break
        seen = "const a = document.activeElement, s = (one) => getComputedStyle(one).outlineStyle; "
        assert opened.execute_script(f"{seen} return a.type === 'radio' ? s(a.nextSibling) : s(a)") != "none", reached
    wanted = {"theme", "score", "part", "mode", "scope", "find", "dataset", "score-table", "save-table", "save-rows"}
    assert wanted <= set(reached)


def test_a_screen_reader_finds_names_for_everything(opened):
    nodes = opened.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"button", "link", "region", "searchbox", "radio", "image", "navigation", "combobox", "group"}
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes
             if not node["ignored"] and node["role"]["value"] in roles]  # fmt: skip
    assert {role for role, _ in named} >= roles - {"group"}
    assert [role for role, name in named if not name.strip() and role != "group"] == []
    assert {"Score", "Rows", "Setting", "Show"} <= {name for role, name in named if role == "group"}
    assert sum(name.startswith("Figure: ") for role, name in named if role == "region") == 2
    images = [name for role, name in named if role == "image"]
    assert any(name.startswith("Mean ranks by ARI, held-out rows, from the best on the left") for name in images)
    levels = opened.execute_script("return [...document.querySelectorAll('h1,h2,h3')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1


def test_it_prints_all_of_it_in_the_light(opened):
    one(opened, "#theme").click()
    opened.execute_script(
        "window.seen = []; addEventListener('beforeprint', () => seen.push(document.documentElement.dataset.theme))"
    )
    pdf = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert opened.execute_script("return seen") == ["light"]
    assert opened.execute_script("return document.documentElement.dataset.theme") == "dark"
    see(opened, 1020, "light", media="print")
    for selector in ("nav", "#theme", "#find", "#save-rows", "input[name=score] + span"):
        assert not one(opened, selector).is_displayed()
    assert one(opened, "#score-table").is_displayed()
    assert one(opened, "#shown").is_displayed()  # says what the switches would
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 1020
    see(opened, 1280, "light")
