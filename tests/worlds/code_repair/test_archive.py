"""Archives are untrusted: whatever is in them stays in memory, and within bounds."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.code_repair import problem
from isentrope.worlds.code_repair.grade import files_with_tests, graded_part, is_protected, is_test
from isentrope.worlds.code_repair.problem import archive_hash, read_archive, small_packages


def tar_of(path: Path, members: dict[str, bytes | str]) -> str:
    """Text is the target of a symbolic link."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(data, str):
                info.type, info.linkname = tarfile.SYMTYPE, data
                tar.addfile(info)
            else:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return str(path)


def test_the_top_folder_is_left_out(tmp_path: Path) -> None:
    files = {"pkg-1.0/a.py": b"1", "pkg-1.0/b/c.py": b"2"}
    expected = {"a.py": b"1", "b/c.py": b"2"}
    for name in (tar_of(tmp_path / "pkg-1.0.tar.gz", dict(files)), str(tmp_path / "pkg.zip")):
        if name.endswith(".zip"):
            with zipfile.ZipFile(name, "w") as packed:
                for path, data in files.items():
                    packed.writestr(path, data)
        assert {path: item.data for path, item in read_archive(name).items()} == expected
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    (tmp_path / "pkg-1.0" / "link").symlink_to("/etc/passwd")
    (tmp_path / "pkg-1.0" / ".git").mkdir()
    (tmp_path / "pkg-1.0" / ".git" / "config").write_text("secret")
    assert {path: item.data for path, item in read_archive(str(tmp_path / "pkg-1.0")).items()} == expected


def test_hostile_members(tmp_path: Path) -> None:
    name = tar_of(
        tmp_path / "x.tar.gz",
        {"p/ok.py": b"1", "p/../../out.py": b"2", "/etc/x": b"3", "p/abs": "/etc/passwd", "p/up": "../../etc/passwd",
         "p/in": "ok.py", "p/__pycache__/x.pyc": b"4"},
    )  # fmt: skip
    files = read_archive(name)
    assert {path: (item.data, item.link) for path, item in files.items()} == {"ok.py": (b"1", ""), "in": (b"", "ok.py")}


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(problem, "MAX_FILES", 10)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("p/zeros", bytes(3 << 20))
    with pytest.raises(TaskError, match="more than 1 MB"):
        read_archive(str(tmp_path / "bomb.zip"))
    with pytest.raises(TaskError, match="larger than"):
        read_archive(tar_of(tmp_path / "bomb.tar.gz", {"p/zeros": bytes(70 << 20)}))
    with pytest.raises(TaskError, match="10 files"):
        read_archive(tar_of(tmp_path / "many.tar.gz", {f"p/{n}": b"" for n in range(20)}))


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "text.tar.gz").write_text("hello")
    (tmp_path / "cut.tar.gz").write_bytes(gzip.compress(bytes(2000))[:20])
    (tmp_path / "empty").mkdir()
    for name in ("text.tar.gz", "cut.tar.gz", "missing.tar.gz", "empty"):
        with pytest.raises(TaskError):
            read_archive(str(tmp_path / name))
    with pytest.raises(TaskError, match="there are calculator"):
        read_archive("small:../../etc")


def test_hashes(tmp_path: Path) -> None:
    assert len({archive_hash(f"small:{name}") for name in small_packages()}) == len(small_packages())
    name = tar_of(tmp_path / "x.tar.gz", {"p/a": b"1"})
    before = archive_hash(name)
    Path(name).write_bytes(Path(name).read_bytes() + b"\0")
    assert archive_hash(name) != before


@pytest.mark.parametrize(
    ("path", "test", "protected"),
    [
        ("pkg/core.py", False, False),
        ("pkg/testing_tools.py", False, False),
        ("pkg/latest.py", False, False),
        ("tests/test_core.py", True, True),
        ("pkg/tests/data.json", True, True),
        ("pkg/core_test.py", True, True),
        ("conftest.py", True, True),
        ("pkg/conftest.py", True, True),
        ("pytest.ini", False, True),
        ("pyproject.toml", False, True),
        ("pkg/sitecustomize.py", False, True),
        ("pkg/x.pth", False, True),
        (".hidden/x.py", False, True),
    ],
)
def test_what_is_protected(path: str, test: bool, protected: bool) -> None:
    assert (is_test(path), is_protected(path)) == (test, protected)


def test_the_part_of_a_diff_that_counts() -> None:
    diff = {"pkg/core.py": b"1", "pkg/new.py": b"2", "tests/test_core.py": b"3", "conftest.py": b"4"}
    assert graded_part(diff, ["pkg/core.py", "tests/test_core.py"], new_files=False) == {"pkg/core.py": b"1"}
    assert graded_part(diff, ["pkg/core.py"], new_files=True) == {"pkg/core.py": b"1", "pkg/new.py": b"2"}
    assert files_with_tests(["pkg/a.py", "tests/test_a.py", "tests/data.py", "pkg/b_test.py"]) == [
        "pkg/b_test.py",
        "tests/test_a.py",
    ]
