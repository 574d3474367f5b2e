"""A real browser, and what a person does with a page in it."""

import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(programs):
        pytest.fail(
            "no chromium and chromedriver on the PATH: scripts/install-browser, or `make test-browser`, gets them"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(programs[1]))
    browser.downloads = tmp_path_factory.mktemp("downloads")
    place = {"behavior": "allow", "downloadPath": str(browser.downloads)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", place)
    yield browser
    browser.quit()


@pytest.fixture
def opened(driver, page):
    """The page, opened anew in a window of a desk, in the light."""
    see(driver, 1280, "light")
    show(driver, page)
    driver.execute_script("localStorage.clear()")
    show(driver, page)
    return driver


def see(driver, width, theme, media=""):
    """The width of the window, and what the reader's system prefers."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    prefers = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": prefers})


def show(driver, path):
    driver.get_log("browser")
    driver.get(path.as_uri())
    WebDriverWait(driver, 10).until(lambda d: d.execute_script("return document.documentElement.dataset.ready"))


def one(driver, selector):
    return driver.find_element(By.CSS_SELECTOR, selector)


def texts(driver, selector):
    return [e.text for e in driver.find_elements(By.CSS_SELECTOR, selector) if e.is_displayed()]


def in_view(driver, element):
    driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    return element


def errors(driver):
    return [entry["message"] for entry in driver.get_log("browser")]
