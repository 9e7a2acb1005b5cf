"""A document of the checkout as Python-Markdown and the site's places need it."""

import tomllib

import pytest

from redbox_bed.core.places import CHECKOUT
from redbox_release.site.markdown import page_of
from redbox_release.site.places import pages


@pytest.mark.parametrize(
    ("path", "link", "place"),
    [
        ("README.md", "docs/users/tutorial.md", "users/tutorial.md"),
        ("README.md", "docs/reference/openapi.json", "http-api.md"),
        ("docs/users/guide.md", "../../examples", "../examples.md"),
        ("docs/users/guide.md", "../../examples/pods/mpi.yaml", "../examples.md#podsmpiyaml"),
        ("docs/users/guide.md", "pods.md#volumes", "pods.md#volumes"),
        ("docs/developers/decisions/README.md", "../architecture.md", "../architecture.md"),
        ("docs/developers/architecture.md", "decisions/README.md", "decisions/index.md"),
        (
            "deploy/chart/README.md",
            "../../docs/administrators/kubernetes.md#install",
            "administrators/kubernetes.md#install",
        ),
        ("docs/pods.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("docs/pods.md", "#logs", "#logs"),
    ],
)
def test_a_link_between_files_becomes_one_between_pages(path: str, link: str, place: str) -> None:
    assert page_of(path, f"See [`that`]({link}).\n") == f"See [`that`]({place}).\n"


def test_a_linked_file_without_a_page_is_named() -> None:
    others: list[str] = []
    text = page_of("docs/a.md", "[unit](../redbox/redbox/setup/host_files/redbox.service)\n", others.append)
    assert others == ["redbox/redbox/setup/host_files/redbox.service"]
    assert "(files/redbox/redbox/setup/host_files/redbox.service.md)" in text


def test_code_is_left_alone() -> None:
    text = "`[a](b.md) <name>` and\n\n```sh\n# no [heading](x.md)\n- no item\n```\n"
    assert page_of("docs/a.md", text) == text


def test_what_looks_like_a_tag_is_text() -> None:
    assert page_of("docs/a.md", "its pod is <name>-job<br>and\n") == "its pod is &lt;name>-job<br>and\n"


def test_headings_have_the_anchors_of_forges() -> None:
    text = page_of("docs/a.md", "## Where is it decided …?\n## Twice\n## Twice\n")
    assert "{: #where-is-it-decided- }" in text
    assert text.endswith("## Twice {: #twice }\n## Twice {: #twice-1 }\n")


def test_what_belongs_to_an_item_is_indented_by_four_columns() -> None:
    text = "Steps:\n1. One\n\n   ```sh\n   true\n   ```\n2. Two\n\nEnd\n"
    assert page_of("docs/a.md", text) == "Steps:\n\n1. One\n\n    ```sh\n    true\n    ```\n\n2. Two\n\nEnd\n"


def test_a_page_with_a_picture_brings_mermaid_and_no_other_does() -> None:
    text = page_of("docs/decisions/a.md", "```mermaid\nflowchart\n```\n")
    assert '<script src="../assets/mermaid.min.js"></script>' in text
    assert "script" not in page_of("docs/a.md", "plain\n")


def test_every_page_has_its_place_in_the_navigation() -> None:
    settings = tomllib.loads((CHECKOUT / "deploy/release/site/zensical.toml").read_text())
    named = {
        page for section in settings["project"]["nav"] for entry in section.values() for page in places(entry)
    }
    decisions = {page for page in pages().values() if page.startswith("developers/decisions/")}
    missing = set(pages().values()) - named - decisions
    assert missing == set(), "give it its place in deploy/release/site/zensical.toml"


def places(entries: list[dict[str, str]]) -> list[str]:
    return [page for entry in entries for page in entry.values()]
