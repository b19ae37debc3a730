"""What the release checks say, on small pages."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = """# Title

![A picture
of two lines](docs/images/a.jpg)

See [the page](docs/a.md#there), [a site](https://example.org/x) and [below](#cite).

```python
rows[0](docs)
```
"""


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")


@pytest.mark.usefixtures("scripts")
def test_the_readme_of_the_index_leads_somewhere():
    pytest.importorskip("hatchling")
    from check_release import dead_links
    from index_readme import for_index

    assert dead_links(PAGE) == ["docs/images/a.jpg", "docs/a.md#there"]
    alone = for_index(PAGE, None)
    assert "# Title\n\nSee the page, [a site](https://example.org/x) and [below](#cite)." in alone
    assert "rows[0](docs)" in alone
    hosted = for_index(PAGE, "https://example.org/mk")
    assert "![A picture\nof two lines](https://example.org/mk/raw/HEAD/docs/images/a.jpg)" in hosted
    assert "[the page](https://example.org/mk/blob/HEAD/docs/a.md#there)" in hosted
    for page in (PAGE, (ROOT / "README.md").read_text(encoding="utf-8")):
        assert dead_links(for_index(page, None)) == dead_links(for_index(page, "https://example.org/mk")) == []


@pytest.mark.usefixtures("scripts")
def test_a_step_that_fails_stops_the_release(tmp_path, capsys):
    from check_release import first_python_block, run

    assert first_python_block(PAGE) == "rows[0](docs)\n"
    run("a step", [sys.executable, "-c", "print('fine')"], tmp_path)
    assert capsys.readouterr().out == "a step ...\n    fine\n"
    with pytest.raises(SystemExit, match="not fit for release: a step failed"):
        run("a step", [sys.executable, "-c", "raise SystemExit('reason')"], tmp_path)
    assert "    reason\n" in capsys.readouterr().out
