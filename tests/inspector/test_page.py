import pytest

pytestmark = pytest.mark.xdist_group("browser")


def test_the_page_opens(server, page):
    page.goto(server.url)
    page.get_by_role("tab", name="Runs").wait_for()
    page.get_by_role("button", name="lake").first.wait_for()
