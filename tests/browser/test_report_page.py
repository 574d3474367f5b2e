"""The report page in a real browser, as a person would use it. Run by `make test-browser`."""

import base64
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from tests.views import graph_view

from fmtc import FMTC
from fmtc.artifacts import runs
from fmtc.cli.leading import write_consensus
from fmtc.cli.words import Words
from fmtc.protocol.method import view_method
from fmtc.report import render, study, summarise
from fmtc.runtime.conductor import RESULT, write_record
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport
from fmtc.runtime.spec import RunSpec
from fmtc.tables import Silo

from .conftest import errors, in_view, one, see, show, texts

pytestmark = pytest.mark.browser

SCRIPT, IMAGE = "<script>window.hacked = 1</script>", '"><img src=x onerror="window.hacked=1">'
NAMES = ["north", SCRIPT, IMAGE]
COLUMNS = ("height", SCRIPT, IMAGE, "</script><b>age", "${weight}")


VIEWS = {"mixture": FMTC, "graph": graph_view}
CHARTS = {"mixture": ["likelihood"], "graph": ["objective", "residuals"]}


@pytest.fixture(scope="module", params=VIEWS)
def view(request):
    """Every page is looked at in both views."""
    return request.param


@pytest.fixture(scope="module")
def home(tmp_path_factory, view):
    """The folder of a run of three silos with hostile names, with and without what a page needs of the rows."""
    folder = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    silos = []
    for t, name in enumerate(NAMES):
        y = rng.integers(3, size=60 + 10 * t)
        silos.append(Silo(name, 3.5 * np.eye(5)[y] + rng.normal(size=(len(y), 5)), COLUMNS, np.arange(len(y))))
    model = VIEWS[view](3, max_iter=8, random_state=0).fit({silo.name: silo.X for silo in silos})
    assert model.view_ == view
    results = runs.results(model, silos)
    files, notes = [Path(f"{SCRIPT}.csv".replace("/", "-"))], [f"a note on {SCRIPT}"]
    report = runs.report(model, results, files=files, as_published=False, seconds=1.0, notes=notes)
    runs.write_run(folder / "plain", False, model, results, report)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fmtc.report.rows.FEW_ROWS", 0)  # two more fits are enough here
        details = study(model, results)
    runs.write_run(folder / "run", False, model, results, report | {"details": details})
    return folder


@pytest.fixture(scope="module")
def page(home):
    path = home / "report.html"
    path.write_text(render(summarise(home / "run")), encoding="utf-8")
    return path


def inked(driver, canvas):
    """How many pixels of a canvas are unlike its corner, and their mean colour."""
    return driver.execute_script(
        """const c = arguments[0], pen = c.getContext('2d', { willReadFrequently: true }); // it may be the first to ask
        const d = pen.getImageData(0, 0, c.width, c.height).data;
        let n = 0, sum = 0;
        for (let i = 0; i < d.length; i += 4) {
          if (d[i] !== d[0] || d[i + 1] !== d[1] || d[i + 2] !== d[2]) { n += 1; sum += d[i] + d[i + 1] + d[i + 2]; }
        }
        return [n, n ? sum / n : 0];""",
        canvas,
    )


# ------------------------------------------------------------------------------------------------------- opening


def test_it_opens_without_errors_and_hostile_names_are_words(opened):
    assert errors(opened) == []
    assert opened.execute_script("return window.hacked") is None
    assert opened.execute_script("return document.images.length") == 0
    assert texts(opened, "#silos tbody th") == NAMES
    assert SCRIPT in " ".join(texts(opened, "#summary .card bdi"))
    canvas = in_view(opened, one(opened, "canvas"))
    WebDriverWait(opened, 3).until(lambda d: inked(d, canvas)[0] > 100)


def test_nothing_goes_to_the_network(opened):
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0
    outcome = opened.execute_async_script(
        """const done = arguments[0];
        const blocked = new Promise((told) =>
          addEventListener('securitypolicyviolation', (event) => told(event.violatedDirective)));
        fetch('http://127.0.0.1:9/').then(() => done('fetched'), () => blocked.then(done));"""
    )
    assert outcome == "connect-src"
    blocked = opened.execute_script(
        "try { document.body.insertAdjacentHTML('beforeend', '<i></i>'); return 'set'; } catch (e) { return e.name; }"
    )
    assert blocked == "TypeError"  # trusted types
    opened.get_log("browser")


@pytest.mark.parametrize("width", [390, 820, 1440])
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
    assert errors(driver) == []


@pytest.mark.parametrize("which", ["plain", "consensus", "one silo"])
def test_pages_of_other_runs_open_too(driver, home, view, tmp_path, which):
    if which == "plain":
        summary = summarise(home / "plain")
    elif which == "consensus":
        summary = summarise(consensus(tmp_path, VIEWS[view](2, max_iter=3, random_state=0)))
    else:
        silo = Silo("only", np.random.default_rng(0).normal(size=(30, 3)), None, np.arange(30))
        model = VIEWS[view](2, max_iter=2, random_state=0).fit({"only": silo.X})
        results = runs.results(model, [silo])
        report = runs.report(model, results, files=[], as_published=False, seconds=1.0, notes=[])
        runs.write_run(tmp_path / "run", False, model, results, report)
        summary = summarise(tmp_path / "run")
    (tmp_path / "page.html").write_text(render(summary), encoding="utf-8")
    see(driver, 1280, "light")
    show(driver, tmp_path / "page.html")
    assert errors(driver) == []
    assert bool(driver.find_elements(By.TAG_NAME, "canvas")) == (which != "consensus")
    assert len(driver.find_elements(By.CSS_SELECTOR, ".chart svg")) == len(CHARTS[view])


def consensus(folder, model):
    rng, settings = np.random.default_rng(0), model._settings()
    method = view_method(settings.view)
    silos = {name: rng.normal(size=(20, 3)) for name in "ab"}
    result = run(LocalTransport(silos, settings, method=method), settings, method=method)
    write_record(RunSpec("1", settings, folder, method_name=method.name), result)
    write_consensus(Words(quiet=True), folder / "out", False, model, folder / RESULT, {"federation": "study"})
    return folder / "out"


def test_what_left_is_a_table_with_what_it_can_tell(opened, home):
    """Shapes in letters that are explained, and a row for every field."""
    sent = summarise(home / "run")["sent"]
    cells = opened.find_elements(By.CSS_SELECTOR, "#sent tbody tr")
    assert [row.find_element(By.TAG_NAME, "code").text for row in cells] == [line["field"] for line in sent]
    for row, line in zip(cells, sent, strict=True):
        for part in (line["phase"], line["what"], line["tells"], line["shape"], str(line["times"])):
            assert " ".join(part.split()) in " ".join(row.text.split())
    who, letters = texts(opened, "#sent .say")
    assert "the server saw each silo's answers" in who
    assert "d stands for" in letters


def test_it_opens_with_what_was_found(opened, home):
    """Clusters in words and units, then each silo's share, before anything else; bookkeeping comes last."""
    summary = summarise(home / "run")
    order = [e.get_attribute("id") for e in opened.find_elements(By.CSS_SELECTOR, "main > section")]
    assert order == ["summary", "rows", "atlas", "clusters", "silos", "run", "trust", "sent", "settings"]
    cards = texts(opened, "#summary .card")
    assert len(cards) == 3
    for card, found in zip(cards, summary["found"], strict=True):
        assert found["name"] in card
        assert f"{found['percent']} of all rows" in card
        for difference in found["differences"]:
            assert f"{difference['what']} {difference['amounts']}" in " ".join(card.split())
    assert len(opened.find_elements(By.CSS_SELECTOR, ".card .bars")) == sum(
        len(f["differences"]) for f in summary["found"]
    )
    bars = opened.find_elements(By.CSS_SELECTOR, ".shares .share")
    for bar, line in zip(bars, summary["silos"], strict=True):
        wide = [rect.size["width"] for rect in bar.find_elements(By.TAG_NAME, "rect")]
        assert np.allclose(np.array(wide) / bar.size["width"], [share for share in line["shares"] if share], atol=0.01)
    assert not opened.find_elements(By.TAG_NAME, "aside")  # a landmark has no place inside main


def test_the_atlas_has_the_names_of_the_cards_and_opens_its_features(opened, home):
    summary = summarise(home / "run")
    named = {one["cluster"]: one["name"] for one in summary["found"]}
    rows = opened.find_elements(By.CSS_SELECTOR, "#atlas tbody tr")
    assert len(rows) == 3
    for row, told in zip(rows, summary["atlas"]["rows"], strict=True):
        assert row.find_element(By.TAG_NAME, "th").text.endswith(named[told["concept"]])
        cells = [" ".join(cell.text.split()) for cell in row.find_elements(By.CSS_SELECTOR, "td.num")]
        flags = [cell["flag"] if cell["flag"] != "matched" else "" for cell in told["cells"]]
        assert cells == [f"{cell['share']} {flag}".strip() for cell, flag in zip(told["cells"], flags, strict=True)]
        in_view(opened, row.find_element(By.TAG_NAME, "summary")).click()
        features = [" ".join(item.text.split()) for item in row.find_elements(By.TAG_NAME, "li")]
        assert features == [f"{one['what']} {one['value']}" for one in told["features"]]
    assert errors(opened) == []


@pytest.fixture(scope="module")
def lacking(tmp_path_factory, view):
    """The page of a run in which two of three silos lack a cluster."""
    folder = tmp_path_factory.mktemp("lacking")
    rng = np.random.default_rng(1)
    have = {"north": [40, 40, 0], "south": [0, 40, 40], "west": [40, 40, 40]}
    silos = [
        Silo(name, 4 * np.eye(5)[np.repeat(range(3), counts)] + rng.normal(size=(sum(counts), 5)),
             tuple("abcde"), np.arange(sum(counts)))
        for name, counts in have.items()
    ]  # fmt: skip
    own = {name: sum(n > 0 for n in counts) for name, counts in have.items()}
    model = VIEWS[view](3, clusters_per_silo=own, max_iter=25, random_state=0).fit(
        {silo.name: silo.X for silo in silos}
    )
    results = runs.results(model, silos)
    report = runs.report(model, results, files=[], as_published=False, seconds=1.0, notes=[])
    runs.write_run(folder / "run", False, model, results, report)
    summary = summarise(folder / "run")
    path = folder / "report.html"
    path.write_text(render(summary), encoding="utf-8")
    return path, summary


@pytest.mark.parametrize("width", [390, 1280])
def test_clusters_that_silos_lack_are_shown_as_such(driver, lacking, width):
    """A dash for what a silo lacks, and nothing wider than its place."""
    path, summary = lacking
    see(driver, width, "light")
    show(driver, path)
    head = texts(driver, "#atlas thead th.num")
    cells = {}
    for row in driver.find_elements(By.CSS_SELECTOR, "#atlas tbody tr"):
        for name, cell in zip(head, row.find_elements(By.CSS_SELECTOR, "td.num"), strict=True):
            cells.setdefault(name, []).append(cell.text)
    dashes = {name: sum(text == "–" for text in column) for name, column in cells.items()}
    assert dashes == {"north": 1, "south": 1, "west": 0}
    lone = [line["shares"] for line in summary["silos"] if line["silo"] in ("north", "south")]
    assert all(sum(share == 0 for share in shares) == 1 for shares in lone)
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert errors(driver) == []


def test_pictures_and_labels_can_be_saved(opened, home, view):
    for path in opened.downloads.iterdir():
        path.unlink()
    for name in ("shares", "maps", *CHARTS[view], "labels"):
        in_view(opened, one(opened, f"[data-save={name}]")).click()
        file = opened.downloads / f"run-{name}.{'csv' if name == 'labels' else 'svg'}"
        WebDriverWait(opened, 5).until(lambda _, file=file: file.is_file())
    drawn = {file.stem: ElementTree.parse(file).getroot() for file in opened.downloads.glob("*.svg")}
    assert len(list(drawn["run-maps"].iter("{http://www.w3.org/2000/svg}circle"))) == 210 + 3  # rows, and a legend
    assert SCRIPT in "".join(drawn["run-shares"].itertext())
    assert all("class" not in one.attrib for root in drawn.values() for one in root.iter())  # needs no style sheet
    kept = pl.read_csv(opened.downloads / "run-labels.csv")
    assert kept.columns == ["silo", "row", "cluster", "name"]
    north = pl.read_csv(home / "run" / "labels" / "north.csv")
    assert kept.filter(pl.col("silo") == "north")["cluster"].to_list() == north["cluster"].to_list()
    assert errors(opened) == []


def long_names(summary, m=24):
    """The same summary for many silos whose names begin alike."""
    names = [f"University Hospital Number {t}, Department of Internal Medicine" for t in range(m)]
    line, shown = summary["silos"][0], next(iter(summary["points"].values()))
    return summary | {
        "silos": [line | {"silo": name} for name in names],
        "clusters": [
            one | {"silo": name} for name in names for one in summary["clusters"] if one["silo"] == line["silo"]
        ],
        "points": dict.fromkeys(names, shown),
    }


@pytest.mark.parametrize("width", [390, 1280])
def test_many_silos_with_long_names_are_readable(driver, home, tmp_path, width):
    path = tmp_path / "many.html"
    path.write_text(render(long_names(summarise(home / "run"))), encoding="utf-8")
    see(driver, width, "light")
    show(driver, path)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    heads = driver.find_elements(By.CSS_SELECTOR, ".panel figcaption bdi")
    assert len(heads) == 24
    cut = "return arguments[0].scrollHeight > arguments[0].clientHeight + 2"
    assert not any(driver.execute_script(cut, head) for head in heads)  # the whole name is there
    if width == 1280:
        assert max(row.size["height"] for row in driver.find_elements(By.CSS_SELECTOR, "#cluster-table tbody tr")) < 130
    else:
        assert one(driver, ".plot").size["width"] > 300
        nav, button = one(driver, "nav").rect, one(driver, "#theme").rect
        assert nav["y"] >= button["y"] + button["height"] - 1
        links = driver.find_elements(By.CSS_SELECTOR, "nav a")
        assert all(link.rect["x"] + link.rect["width"] <= width for link in links)


# --------------------------------------------------------------------------------------------------------- using


def test_tables_sort_by_every_kind_of_column(opened):
    in_view(opened, one(opened, "#h-silos"))
    head = {button.text: button for button in opened.find_elements(By.CSS_SELECTOR, "#silos .sort")}
    rows = lambda: texts(opened, "#silos tbody td:nth-of-type(1)")  # noqa: E731
    assert rows() == ["60", "70", "80"]
    head["Rows"].click()
    assert rows() == ["80", "70", "60"]
    assert one(opened, "#silos th[aria-sort]").get_attribute("aria-sort") == "descending"
    head["Rows"].send_keys(Keys.ENTER)
    assert rows() == ["60", "70", "80"]
    head["Silo"].click()
    assert texts(opened, "#silos tbody th") == [IMAGE, SCRIPT, "north"]
    assert len(opened.find_elements(By.CSS_SELECTOR, "#silos th[aria-sort]")) == 1
    assert "Sorted by Silo" in one(opened, "#live").get_attribute("textContent")


def place_of(driver, canvas, j):
    """Where the label of a cluster is, from the middle of the canvas."""
    return driver.execute_script(
        """const box = arguments[0].getBoundingClientRect();
        const data = JSON.parse(document.getElementById('data').textContent);
        const of = (text, kind) => new kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
        const p = data.points[Number(arguments[0].dataset.silo)], xy = of(p[data.views[0]], Uint16Array);
        const i = of(p.cluster, Uint16Array).indexOf(arguments[1]);
        return [14 + xy[i] / 65535 * (box.width - 28) - box.width / 2,
                box.height / 2 - 14 - xy[p.n + i] / 65535 * (box.height - 28), i];""",
        canvas, j,
    )  # fmt: skip


def test_hovering_tells_about_a_row(opened, view):
    canvas = in_view(opened, one(opened, "canvas[data-silo='1']"))
    x, y, i = place_of(opened, canvas, 2)
    ActionChains(opened).move_to_element_with_offset(canvas, round(x), round(y)).perform()
    tip = one(opened, "#tip")
    assert tip.is_displayed()
    assert f"{SCRIPT}, row {i}" in tip.text
    assert "Cluster 2 (high " in tip.text
    assert " against " in tip.text
    assert ("; probability " in tip.text) == (view == "mixture")  # that of the graph view is not calibrated
    assert "%" not in tip.text
    ActionChains(opened).move_to_element(one(opened, "#h-rows")).perform()
    assert not tip.is_displayed()


def test_a_box_picks_clusters_and_escape_clears(opened):
    canvas = in_view(opened, one(opened, "canvas[data-silo='0']"))
    before = inked(opened, canvas)
    x, y, _ = place_of(opened, canvas, 1)
    start = ActionChains(opened).move_to_element_with_offset(canvas, round(x) - 12, round(y) - 12).click_and_hold()
    start.move_by_offset(12, 12).move_by_offset(12, 12).perform()
    assert one(opened, ".brush:not([hidden])").size["width"] == pytest.approx(24, abs=4)
    ActionChains(opened).release().perform()
    assert not opened.find_elements(By.CSS_SELECTOR, ".brush:not([hidden])")
    assert one(opened, "#picked").text.startswith("Cluster")
    pressed = texts(opened, ".pick[aria-pressed=true]")
    assert len(pressed) >= 1
    shown = texts(opened, "#cluster-table tbody tr")
    assert len(shown) == 3 * len(pressed)  # all three silos have it
    assert "of 9 clusters shown" in one(opened, "#counted").text
    opened.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert inked(opened, canvas) != before
    ActionChains(opened).send_keys(Keys.ESCAPE).perform()
    assert one(opened, "#picked").text == ""
    assert len(texts(opened, "#cluster-table tbody tr")) == 9


def test_picking_by_click_and_finding_by_words(opened):
    canvas = in_view(opened, one(opened, "canvas[data-silo='2']"))
    x, y, _ = place_of(opened, canvas, 0)
    ActionChains(opened).move_to_element_with_offset(canvas, round(x), round(y)).click().perform()
    assert len(texts(opened, ".pick[aria-pressed=true]")) == 1
    one(opened, "#clear").click()
    assert texts(opened, ".pick[aria-pressed=true]") == []
    one(opened, ".pick").click()
    assert len(texts(opened, "#cluster-table tbody tr")) == 3
    one(opened, ".pick").click()
    one(opened, "#find").send_keys("north")
    assert len(texts(opened, "#cluster-table tbody tr")) == 3


def test_another_layout_draws_another_picture(opened):
    canvas = in_view(opened, one(opened, "canvas"))
    first = canvas.screenshot_as_base64
    one(opened, "input[value=plane]").click()
    opened.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert canvas.screenshot_as_base64 != first
    assert "principal plane" in one(opened, "#about-view").text.lower()


def test_the_theme_is_kept(opened, page):
    theme = lambda: opened.execute_script("return document.documentElement.dataset.theme")  # noqa: E731
    one(opened, "#theme").click()
    assert theme() == "dark"
    assert one(opened, "#theme").get_attribute("aria-pressed") == "true"
    show(opened, page)
    assert theme() == "dark"
    one(opened, "#theme").click()
    assert theme() == "light"


def test_the_code_can_be_copied(opened):
    opened.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    in_view(opened, one(opened, "#copy")).click()
    WebDriverWait(opened, 3).until(lambda d: one(d, "#copy").text == "Copied")
    copied = opened.execute_async_script(
        "navigator.clipboard.readText().then(arguments[0], (e) => arguments[0](e.name))"
    )
    assert copied == one(opened, "#code").get_attribute("textContent")
    assert "model = FMTC(n_clusters=3" in copied
    assert one(opened, "#live").get_attribute("textContent") == "Copied"


def test_all_can_be_done_by_keyboard(opened):
    active = lambda script: opened.execute_script(f"return document.activeElement.{script}")  # noqa: E731
    reached = []
    for _ in range(80):
        ActionChains(opened).send_keys(Keys.TAB).perform()
        reached.append(active("id || document.activeElement.tagName"))
        if reached[-1] == "copy":
            break
        style = opened.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
        assert style != "none", reached
    assert reached[0] == "A"  # past the head, to the summary
    assert {"theme", "find", "CANVAS", "copy", "BUTTON", "SUMMARY"} <= set(reached)
    canvas = one(opened, "canvas")
    opened.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert one(opened, "#live").get_attribute("textContent").startswith("Cluster 1 (")
    canvas.send_keys(Keys.ENTER)
    assert len(texts(opened, ".pick[aria-pressed=true]")) == 1
    canvas.send_keys(Keys.ESCAPE)
    assert texts(opened, ".pick[aria-pressed=true]") == []


def test_a_screen_reader_finds_names_for_everything(opened):
    nodes = opened.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"button", "link", "application", "region", "searchbox", "radio", "table", "image", "navigation"}
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes
             if not node["ignored"] and node["role"]["value"] in roles]  # fmt: skip
    assert {role for role, _ in named} >= {"button", "link", "application", "region", "searchbox", "radio", "image"}
    assert [role for role, name in named if not name.strip() and role != "table"] == []
    levels = opened.execute_script("return [...document.querySelectorAll('h1,h2,h3')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1


def test_it_prints_all_of_it_in_the_light(opened):
    one(opened, "#theme").click()
    told = """window.seen = []; addEventListener('beforeprint', () => seen.push(
        document.documentElement.dataset.theme, document.querySelectorAll('details.legend:not([open])').length));"""
    opened.execute_script(told)
    pdf = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert 2 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") <= 12
    assert opened.execute_script("return seen") == ["light", 0]
    assert opened.execute_script("return document.documentElement.dataset.theme") == "dark"
    see(opened, 1280, "light", media="print")
    for selector in ("nav", "#theme", "#copy", ".picker"):
        assert not one(opened, selector).is_displayed()
    assert one(opened, "#cluster-table").is_displayed()
    see(opened, 1280, "light")


# --------------------------------------------------------------------------------------------------------- speed


def crowd(summary, m=20, n=5000, k=10):
    """The same summary with as many points as a page may have."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(k, 2)) * 5
    names = [f"silo {t:02d}" for t in range(m)]
    line, cluster, found = summary["silos"][0], summary["clusters"][0], summary["found"][0]
    points = {}
    for name in names:
        label = rng.integers(k, size=n)
        xy = (centers[label] + rng.normal(size=(n, 2))).T.tolist()
        points[name] = {"row": list(range(n)), "cluster": label.tolist(), "x": xy[0], "y": xy[1], "map_x": xy[1],
                        "map_y": xy[0], "probability": [0.5] * n}  # fmt: skip
    return summary | {
        "silos": [line | {"silo": name, "rows": n, "shares": [1 / k] * k} for name in names],
        "clusters": [cluster | {"silo": name, "cluster": j} for name in names for j in range(k)],
        "found": [found | {"cluster": j} for j in range(k)],
        "points": points,
    }  # fmt: skip


def spent(driver):
    """Seconds of a processor that the page's own thread has used, in tasks of any kind: a busy machine adds nothing."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {line["name"]: line["value"] for line in metrics}["TaskDuration"]


def test_twenty_silos_of_five_thousand_points_open_at_once_and_answer_at_once(driver, home, tmp_path):
    path = tmp_path / "crowd.html"
    path.write_text(render(crowd(summarise(home / "run"))), encoding="utf-8")
    assert path.stat().st_size < 5e6
    see(driver, 1440, "light")
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    show(driver, path)
    assert spent(driver) < 2
    canvas = in_view(driver, one(driver, "canvas"))
    WebDriverWait(driver, 10).until(lambda d: inked(d, canvas)[0] > 1000)
    before = spent(driver)
    driver.execute_async_script(
        """const done = arguments[0], buttons = [...document.querySelectorAll('.pick')];
        const step = (i) => {
          if (i === 6) { done(); return; }
          buttons[i].click();
          requestAnimationFrame(() => setTimeout(() => step(i + 1)));
        };
        step(0);"""
    )
    assert (spent(driver) - before) / 6 < 0.3
    before = spent(driver)
    driver.execute_script(
        """const c = arguments[0], box = c.getBoundingClientRect();
        for (let i = 0; i < 50; i++)
          c.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + 3 * i, clientY: box.top + 90 }));""",
        canvas,
    )
    assert (spent(driver) - before) / 50 < 0.016
    driver.execute_cdp_cmd("Performance.disable", {})
    assert errors(driver) == []
