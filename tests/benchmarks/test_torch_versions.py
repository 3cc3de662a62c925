"""The table of torch versions: what a report says, and what the page shows."""

from __future__ import annotations

from pathlib import Path

from benchmarks import torch_versions

REPORT = """<testsuites><testsuite>
<testcase classname="a" name="one"/>
<testcase classname="a" name="two"><failure message="red"/></testcase>
<testcase classname="a" name="three"><error message="red"/></testcase>
<testcase classname="a" name="four"><skipped message="needs torch 2.13: something new"/></testcase>
<testcase classname="a" name="five"><skipped message="no browser"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT, encoding="utf-8")
    counts, failed, reasons = torch_versions.outcomes(tmp_path / "report.xml")
    assert counts == {"passed": 1, "failed": 2, "newer": 1, "skipped": 1}
    assert failed == ["a::two", "a::three"]
    assert reasons == ["needs torch 2.13: something new"]


def test_the_table_is_what_is_stored() -> None:
    page = torch_versions.PAGE.read_text(encoding="utf-8")
    written = page.partition("<!-- torch versions -->\n")[2].partition("<!-- end -->\n")[0]
    assert written == torch_versions.table(torch_versions.stored())
