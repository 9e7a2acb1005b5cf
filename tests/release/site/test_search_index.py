"""Sections in the order in which the search prefers them."""

from typing import Any

from redbox_release.site.search_index import ranked


def section(location: str, title: str = "t", text: str = "") -> dict[str, Any]:
    return {"location": location, "title": title, "text": text}


def test_pages_for_users_come_first_and_keep_their_order() -> None:
    places = [
        "",
        "bed/",
        "administrators/",
        "developers/",
        "users/guide/",
        "users/guide/#gpus",
        "users/pods/",
    ]
    assert [each["location"] for each in ranked(map(section, places))] == [
        *("users/guide/", "users/guide/#gpus", "users/pods/", "", "administrators/", "developers/", "bed/"),
    ]


def test_a_page_that_lists_everything_is_one_section_with_its_titles_as_text() -> None:
    sections = [
        section("http-api/", "The HTTP API", "All."),
        section("http-api/#object-job", "Job", "A job."),
    ]
    (merged,) = ranked(sections)
    assert merged == section("http-api/", "The HTTP API", "All.<p>Job</p> A job.")


def test_a_decision_is_found_after_what_it_is_about() -> None:
    (decision,) = ranked([section("developers/decisions/logs/", "Logs")])
    assert decision["title"] == "Decision: Logs"
