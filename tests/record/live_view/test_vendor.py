"""The files of the live view's page: vendored ones are those that were published, and nothing leads to another host."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

from tests.support.vendor import VENDOR, place_of, vendored

WEB = VENDOR.parent
OWN = sorted(path for path in WEB.rglob("*") if path.is_file() and VENDOR not in path.parents)
LONGEST = 400


def test_vendored_files_are_those_that_were_published() -> None:
    """By size and hash; there is no file that vendor.json does not name."""
    entries = vendored()

    assert {place_of(entry) for entry in entries} == set(VENDOR.iterdir()) - {VENDOR / "vendor.json", VENDOR / "NOTICE"}
    for entry in entries:
        data = place_of(entry).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(data), sha256(data).hexdigest()), entry["path"]
        assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", entry["integrity"])


def test_licences_are_named() -> None:
    """NOTICE has each package with its version, and its licence."""
    notice = (VENDOR / "NOTICE").read_text()

    for entry in vendored():
        assert re.search(
            rf"(?i)^{entry['package']} {re.escape(entry['version'])} .*{entry['licence']}$", notice, re.MULTILINE
        )


def test_own_files_name_no_other_host() -> None:
    """But the name of SVG's language, which nobody fetches."""
    for path in OWN:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//\w+\.\w", text.replace("//# ", "")), path.name


def test_own_files_put_no_text_into_markup() -> None:
    """None of the ways in which text becomes elements, styles in attributes, or code."""
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|\beval\(|new Function|srcdoc"
    for path in OWN:
        text = path.read_text()
        assert not re.search(forbidden, text), path.name
        if path.suffix == ".html":
            assert not re.search(r"\sstyle=|\son\w+=|<script>|<style", text), path.name


def test_own_files_are_short_enough_to_read() -> None:
    """Code below 400 lines a file."""
    lengths = {path.name: len(path.read_text().splitlines()) for path in OWN if path.suffix == ".mjs"}

    assert {name: lines for name, lines in lengths.items() if lines >= LONGEST} == {}


def test_modules_import_what_is_there() -> None:
    """By paths that are relative to them: there is no import map."""
    for path in OWN:
        if path.suffix == ".mjs":
            for name in re.findall(r'^import .*?"(.*?)";|^} from "(.*?)";', path.read_text(), re.MULTILINE):
                target = next(filter(None, name))
                assert (path.parent / Path(target)).resolve().is_file() and target.startswith("./"), (path.name, target)
