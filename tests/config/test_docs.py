from __future__ import annotations

from isentrope.config.describe import describe_settings
from tools.config_docs import PAGE, render


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run `make docs`"


def test_every_setting_is_described() -> None:
    rows = describe_settings()
    assert len({(row.path, row.doc) for row in rows}) == len(rows) > 40
    twice = {row.path for row in rows if sum(other.path == row.path for other in rows) > 1}
    assert twice == {"learn.advantage.divide_by_std", "learn.advantage.discount"}  # it depends on the kind
    assert all(row.doc and row.allowed and row.default for row in rows)
    assert ("critic.lr", "float", "1e-05", "a number above 0", "peak learning rate") in [row[:5] for row in rows]
    assert [row[1:4] for row in rows if row.path == "learn.lr"] == [("float", '"auto"', "a number above 0, or auto")]
