"""Reading the official layout, and the catalogue that is built from it."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.files import cache_folder
from isentrope.worlds.webshop.catalogue import cached, file_mark, open_official
from isentrope.worlds.webshop.products import read_product
from isentrope.worlds.webshop.sources import generated_products, write_official
from tests.worlds.webshop.shop import PRODUCTS, official


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "webshop"


def test_there_and_back(tmp_path: Path) -> None:
    products = list(generated_products())
    assert len({one.asin for one in products}) == len(products) == 392
    assert len({one.title for one in products}) > 350
    items, _ = write_official(tmp_path, products)
    catalogue = open_official(str(items))
    read = [catalogue.product(position) for position in range(len(catalogue))]
    assert read == [replace(one, rating="N.A.", reviews=()) for one in products]


def test_compressed_files_give_the_same(tmp_path: Path) -> None:
    items, notes = write_official(tmp_path, list(generated_products())[:50])
    plain = open_official(str(items))
    (tmp_path / "z").mkdir()
    for path in (items, notes):
        with pa.CompressedOutputStream(str(tmp_path / "z" / f"{path.name}.zst"), "zstd") as out:
            out.write(path.read_bytes())
    packed = open_official(str(tmp_path / "z" / f"{items.name}.zst"))
    assert [packed.product(i) for i in range(50)] == [plain.product(i) for i in range(50)]
    assert [packed.goal(i) for i in range(20)] == [plain.goal(i) for i in range(20)]


def test_a_raw_record() -> None:
    record = {
        "asin": "B01", "name": "Cap", "full_description": "A cap.", "small_description": "Warm.", "category": "fashion",
        "query": " Wool CAPS ", "product_category": "A › B", "pricing": "$1,005.50 - $2,000.00",
        "customization_options": {"Color": [{"value": " Red/Blue ", "image": None}], "Size": None}, "images": ["x"],
    }  # fmt: skip
    cap = read_product(record, (), None)
    assert cap is not None
    assert (cap.bullets, cap.query, cap.price_tag) == (("Warm.",), "wool caps", "$1005.5 to $2000.0")
    assert cap.options == {"color": ("red | blue",)}
    assert 1005.5 <= cap.price <= 2000
    assert cap.price == read_product(record, (), None).price  # pyright: ignore
    assert cap.document() == "cap a cap. warm. color: red | blue"
    assert cap.attributes == ("DUMMY_ATTR",)
    free = read_product({**record, "pricing": "", "customization_options": ""}, (), ("wool",))
    assert free is not None
    assert (free.price, free.price_tag, free.options, free.attributes) == (100.0, "$100.0", {}, ("wool",))
    for asin in ("nan", "B0123456789"):
        assert read_product({**record, "asin": asin}, (), None) is None


def test_built_once_and_again_when_the_file_changes(tmp_path: Path, own_cache: Path) -> None:
    products = list(generated_products())[:40]
    items, _ = write_official(tmp_path, products)
    open_official(str(items)).close()
    (folder,) = [path for path in own_cache.iterdir() if path.is_dir()]
    before = (folder / "shop.sqlite").stat().st_mtime_ns
    assert sorted(path.name for path in folder.iterdir()) == [
        "about.json", "data.csc.index.npy", "goal_order.npy", "goal_products.npy", "goal_starts.npy",
        "indices.csc.index.npy", "indptr.csc.index.npy", "params.index.json", "shop.sqlite",
    ]  # fmt: skip
    open_official(str(items)).close()
    assert (folder / "shop.sqlite").stat().st_mtime_ns == before
    write_official(tmp_path, products[:-1])
    assert len(open_official(str(items))) == 39


def test_files_of_the_same_size_are_told_apart(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"x" * 100)
    other.write_bytes(b"x" * 99 + b"y")
    assert file_mark(one) != file_mark(other)
    other.write_bytes(b"x" * 100)
    assert file_mark(one) == file_mark(other)


def test_what_was_left_unfinished_is_built_anew(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, notes = write_official(tmp_path, list(generated_products())[:40])
    whole = items.read_text(encoding="utf-8")
    items.write_text(whole[: len(whole) // 2], encoding="utf-8")
    with pytest.raises(TaskError, match=r"items_shuffle\.json is not the JSON that was expected"):
        open_official(str(items))
    assert not [path for path in own_cache.iterdir() if path.is_dir()]
    items.write_text(whole, encoding="utf-8")
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)  # as if killed: what was written stays
    with pytest.raises(ZeroDivisionError):
        cached("v0-x", lambda folder: (folder / "half").write_text("x") and 1 // 0)
    monkeypatch.undo()
    monkeypatch.setenv("ISENTROPE_CACHE", str(own_cache.parent))
    assert (own_cache / ".v0-x" / "half").exists()
    assert [path.name for path in cached("v0-x", lambda folder: (folder / "whole").write_text("x")).iterdir()] == [
        "whole"
    ]
    assert len(open_official(str(items))) == 40
    notes.write_text("[1, 2]", encoding="utf-8")
    with pytest.raises(TaskError, match="items_ins_v2"):
        open_official(str(items))


def test_products_of_the_same_number_count_once(tmp_path: Path) -> None:
    products = list(generated_products())[:10]
    items, _ = write_official(tmp_path, [*products, replace(products[3], title="Another")])
    catalogue = open_official(str(items))
    assert len(catalogue) == 10
    assert catalogue.product(3).title == products[3].title


def test_peoples_goals(tmp_path: Path) -> None:
    products = list(generated_products())[:20]
    items, _ = write_official(tmp_path, products)
    entries = [
        {"instruction": "i need it in red.", "instruction_attributes": ["soft"], "instruction_options": ["red"]},
        {"instruction": "whatever", "instruction_attributes": [], "instruction_options": []},
    ]
    human = tmp_path / "items_human_ins.json"
    human.write_text(json.dumps({products[2].asin: entries, "B0MISSING": entries}), encoding="utf-8")
    catalogue = open_official(str(items), human=str(human))
    assert catalogue.goals == 1  # the one without attributes does not count
    goal = catalogue.goal(0)
    assert goal.text.startswith("i need it in red, and price lower than ")
    assert (goal.attributes, goal.options, goal.product.asin) == (("soft",), ("red",), products[2].asin)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "nothing that can be used"),
        ("[1]", "a list of products"),
        ("[]", "nothing that can be used"),
        ('[{"asin": "B1", "customization_options": {"a": [1]}}]', "cannot be"),
    ],
)
def test_files_of_another_kind(tmp_path: Path, content: str, message: str) -> None:
    items, _ = write_official(tmp_path, list(generated_products())[:1])
    items.write_text(content, encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        open_official(str(items))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"products = .*no such file"):
        open_official(str(tmp_path / "items.json"), attributes="x")
    (tmp_path / "items_shuffle_1000.json").write_text("[]")
    with pytest.raises(TaskError, match=r"no items_ins_v2_1000\.json beside"):
        open_official(str(tmp_path / "items_shuffle_1000.json"))


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items, _ = write_official(tmp_path, list(generated_products())[:3])
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(TaskError, match="ISENTROPE_CACHE"):
        open_official(str(items))


def test_the_cache_is_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ISENTROPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert sys.platform == "darwin" or cache_folder("webshop") == Path("/somewhere/isentrope/webshop")


def test_several_at_once_build_one_catalogue(tmp_path: Path, own_cache: Path) -> None:
    items, _ = write_official(tmp_path, list(generated_products())[:100])
    code = f"from isentrope.worlds.webshop.catalogue import open_official; print(len(open_official({str(items)!r})))"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)]
    assert [process.communicate(timeout=120)[0] for process in running] == [b"100\n"] * 3
    assert len([path for path in own_cache.iterdir() if path.is_dir()]) == 1


@pytest.mark.slow
def test_memory_does_not_grow_with_the_products(tmp_path: Path) -> None:
    """A product held as an object takes five kilobytes and more; what may grow is its number in a set and the like."""

    def peak(each: int) -> int:
        folder = tmp_path / str(each)
        folder.mkdir()
        items, _ = write_official(folder, generated_products(each))
        tracemalloc.start()
        open_official(str(items)).close()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(5)  # whatever is imported or cached once
    small, large = peak(30), peak(130)
    assert (large - small) / (100 * 28) < 1500  # it was 445 to 641, with what the process did before


@official
def test_the_official_products_are_read_as_they_are_processed_there() -> None:
    """The file at hand carries the original's own processing too: ours has to come to the same."""
    records = json.loads(pa.input_stream(str(PRODUCTS), compression="zstd").read())
    for record in records:
        read = read_product(record, (), None)
        assert read is not None
        assert {name: list(values) for name, values in read.options.items()} == record["options"]
        assert read.price_tag == record["Price"]
        assert list(read.bullets) == record["BulletPoints"]
        assert (read.title, read.description) == (record["Title"], record["Description"])
        raw = {**record, "pricing": " - ".join(f"${price:,}" for price in record["pricing"])}
        assert read_product(raw, (), None) == read
