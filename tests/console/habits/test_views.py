from pathlib import Path

import pytest
from infer_console.habits.history import MOST_LINES, add_to_history, read_history
from infer_console.habits.views import ViewError, apply_view, read_views, save_view, view_of
from infer_console.view.columns import ColumnChoice
from infer_console.view.look import Look


def test_a_view_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "views.toml"
    look = Look(
        filter='a"b\\', fleet_sort="kv", roster_sort="age", request_sort="ttft", shown="waiting", lens="tier"
    )
    look.columns = {"replicas": ColumnChoice(frozenset({"hits"}), frozenset({"step", "kv%"}))}
    save_view(path, "night", view_of(look, "requests"))
    view = read_views(path)["night"]
    other = Look()
    apply_view(view, other)
    assert view.screen == "requests"
    for name in ("filter", "fleet_sort", "roster_sort", "request_sort", "shown", "lens", "columns"):
        assert getattr(other, name) == getattr(look, name)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["views.toml"]


def test_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "views.toml"
    path.write_text('# mine\n[views.a]\nscreen = "events"\n\n# of b\n[views.b] # the second\nfilter = "x"\n')
    save_view(path, "a", view_of(Look(filter="new"), "fleet"))
    save_view(path, "c", view_of(Look(), "doctor"))
    text = path.read_text()
    for line in ("# mine", "# of b", "[views.b] # the second"):
        assert line in text
    views = read_views(path)
    assert {name: view.filter for name, view in views.items()} == {"a": "new", "b": "x", "c": ""}
    assert views["a"].screen == "fleet"


@pytest.mark.parametrize(
    "text", ["[views.a]\nscreen = 'moon'", "[views.a]\nscren = 'fleet'", "[views", "x = 1"]
)
def test_a_file_that_is_not_understood_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "views.toml"
    path.write_text(text)
    with pytest.raises(ViewError, match=r"views\.toml"):
        save_view(path, "b", view_of(Look(), "fleet"))
    assert path.read_text() == text


def test_names_are_plain(tmp_path: Path) -> None:
    for name in ("", "a b", "a]", "ä", "x" * 40):
        with pytest.raises(ViewError, match="allowed"):
            save_view(tmp_path / "views.toml", name, view_of(Look(), "fleet"))


def test_the_history_is_bounded_private_and_without_repeats(tmp_path: Path) -> None:
    path = tmp_path / "state" / "commands"
    assert read_history(path) == []
    for number in range(3):
        add_to_history(path, f"drain r{number}")
    assert add_to_history(path, "drain r0") == ["drain r1", "drain r2", "drain r0"]
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("".join(f"at -{number}s\n" for number in range(MOST_LINES + 50)) + "\x1b[2J\n")
    assert len(read_history(path)) == MOST_LINES
    assert len(add_to_history(path, "fleet")) == MOST_LINES
    assert "\x1b" not in path.read_text()
