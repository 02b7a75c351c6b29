"""Tab Runs in a real browser, against what the files say."""

import json
import re

import pytest
from run_makers import make_run


def row(page, name):
    return page.locator(f'tr[data-run="{name}"]')


def shown(page):
    return page.locator("tr[data-run]").evaluate_all("rows => rows.map((row) => row.dataset.run)")


def test_every_run_is_shown_with_its_figures(server, page, runs):
    page.goto(server.url)
    row(page, "cartpole-s1").wait_for()
    assert set(shown(page)) == {"cartpole-s1", "cartpole-s2", "lake", "pixels", "corrupt", "half-written"}
    cells = row(page, "cartpole-s1").inner_text()
    result = json.loads((runs / "cartpole-s1" / "run.json").read_text())["result"]
    for text in ("finished", "CartPole-v1:ppo", "2,048"):
        assert text in cells
    # Four episodes are too few for an interval.
    found = re.search(r"([\d.]+)\s*range ([\d.]+) to ([\d.]+)", cells)
    assert [float(number) for number in found.groups()] == pytest.approx(
        [result[name] for name in ("mean", "min", "max")], abs=0.06
    )
    assert row(page, "cartpole-s1").locator("polyline").count() == 1
    assert "damaged" in row(page, "corrupt").inner_text()
    assert "run.json is not valid JSON" in row(page, "corrupt").inner_text()
    assert "its creation was cut short" in row(page, "half-written").inner_text()
    assert row(page, "corrupt").get_by_role("checkbox").is_disabled()


def test_filter_and_order_are_kept_in_the_address(server, page, wait_until):
    page.goto(server.url)
    page.get_by_label("Filter runs").fill("cartpole ppo")
    wait_until(page, "document.querySelectorAll('tr[data-run]').length === 3")
    page.get_by_role("button", name="run", exact=True).click()
    assert shown(page) == ["cartpole-s1", "cartpole-s2", "pixels"]
    page.get_by_role("button", name="run", exact=True).click()
    assert shown(page) == ["pixels", "cartpole-s2", "cartpole-s1"]
    assert "3 of 6 runs" in page.locator("#panel-runs").inner_text()
    page.reload()
    row(page, "pixels").wait_for()
    assert shown(page) == ["pixels", "cartpole-s2", "cartpole-s1"]
    page.get_by_label("Filter runs").fill("nothing-like-it")
    page.get_by_role("heading", name="No run is like that").wait_for()


def test_the_selection_is_shared_and_survives_a_reload(server, page):
    page.goto(server.url)
    page.get_by_label("Select cartpole-s1", exact=True).check()
    page.get_by_label("Select lake", exact=True).check()
    assert "runs=cartpole-s1,lake" in page.url
    assert "primary=lake" in page.url
    page.reload()
    row(page, "lake").wait_for()
    assert page.get_by_label("Select cartpole-s1", exact=True).is_checked()
    assert page.locator("#selection .chip").count() == 2
    page.get_by_label("Deselect lake").click()
    assert not page.get_by_label("Select lake", exact=True).is_checked()
    page.get_by_role("button", name="cartpole-s2", exact=True).click()
    assert page.get_by_role("tab", name="Learning").get_attribute("aria-selected") == "true"
    assert "#learning?runs=cartpole-s2" in page.url


def test_tabs_and_theme_by_keyboard(server, page):
    page.goto(server.url)
    page.get_by_role("tab", name="Runs").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Learning").get_attribute("aria-selected") == "true"
    page.get_by_role("heading", name="No run selected").wait_for()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_label("Switch between light and dark").press("Enter")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_no_runs_says_what_to_do_and_a_new_one_appears(start_server, page, tmp_path):
    server = start_server(tmp_path)
    page.goto(server.url)
    page.get_by_role("heading", name="No runs yet").wait_for()
    assert "gymlab train CartPole-v1:ppo" in page.locator("#panel-runs").inner_text()
    make_run(tmp_path, "fresh")
    row(page, "fresh").wait_for()


def test_nothing_a_run_says_becomes_part_of_the_page(start_server, page, tmp_path):
    hostile = "<img src=x onerror=alert(1)>"
    make_run(tmp_path, "hostile", experiment=hostile, status="crashed", reason=hostile)
    page.goto(start_server(tmp_path).url)
    row(page, "hostile").wait_for()
    assert hostile in row(page, "hostile").inner_text()
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_screen(server, new_page, width):
    page = new_page(viewport={"width": width, "height": 844})
    for address in ("#runs?runs=cartpole-s1,lake", "#learning?runs=cartpole-s1,cartpole-s2"):
        page.goto(server.url + address)
        page.wait_for_timeout(400)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
