"""Lab files: refused options, size, and the command line."""

from pathlib import Path

import pytest

import tinyckpt as tc
import viz
from tinyckpt.cli import main

RESNET = Path(tc.__file__).parent / "data" / "graphs" / "resnet50.json"


def test_lab_without_a_path_is_a_notebook_page() -> None:
    page = viz.lab(tc.networks.chain(4), title="<Mine>")
    assert "&lt;Mine&gt;" in page.html
    assert "iframe" in page._repr_mimebundle_()["text/html"]


@pytest.mark.long
def test_resnet_lab_is_smaller_than_a_mebibyte(tmp_path: Path) -> None:
    path = viz.lab(tc.load_graph(RESNET), tmp_path / "lab.html", time_limit=1)
    assert path.stat().st_size <= 2**20


def test_lab_refuses_bad_options(tmp_path: Path) -> None:
    graph = tc.networks.chain(4)
    with pytest.raises(tc.OptionError, match=r"must end in \.html"):
        viz.lab(graph, tmp_path / "lab.gif")
    with pytest.raises(tc.OptionError, match="unknown theme"):
        viz.lab(graph, theme="blue")
    with pytest.raises(tc.OptionError, match="expected a graph, got a Schedule"):
        viz.lab(tc.plan(graph))  # type: ignore[call-overload]
    with pytest.raises(tc.OptionError, match="show and challenge exclude each other"):
        viz.lab(graph, challenge="50 %", show="store_all")
    with pytest.raises(tc.OptionError, match="title 7: expected a text"):
        viz.lab(graph, title=7)  # type: ignore[call-overload]
    for policies in (7, [7], [["sqrt_n"]]):
        with pytest.raises(tc.OptionError, match=r"policies=.*: expected names of policies"):
            viz.lab(graph, policies=policies)  # type: ignore[call-overload]
    assert list(tmp_path.iterdir()) == []


def test_hostile_names_are_escaped_in_the_page() -> None:
    def loss(x: tc.Var) -> tc.Var:
        return tc.mean(tc.name(tc.tanh(x), "</script><b>'\"") ** 2)

    graph = tc.differentiate(tc.build(loss, tc.Spec((4, 4))))
    assert "</script><b>" not in viz.lab(graph, network="</script><b>").html


@pytest.mark.long
def test_lab_command_writes_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab.html"
    asked = ["lab", "chain:9", "-o", str(path), "--policy", "sqrt_n", "--points", "5"]
    assert main([*asked, "--cost", "flops", "--theme", "dark", "--title", "Mine"]) == 0
    assert capsys.readouterr().out == f"written to {path}; open it in a browser\n"
    text = path.read_text(encoding="utf-8")
    assert 'data-theme="dark"' in text
    assert "<h1>Mine</h1>" in text
    for wrong, said in (
        (["lab", "chain:9"], "required: -o"),
        (["lab", "chain:9", "-o", str(tmp_path / "lab.png")], "must end in .html"),
        (["lab", "chain:9", "-o", str(path), "--points", "1"], "expected 2 to 200"),
        (["lab", "nothing", "-o", str(path)], "unknown network"),
        (["lab", "chain:9", "-o", str(path), "--policy", "sqrt"], "did you mean sqrt_n?"),
        (["lab", "chain:9", "-o", str(path), "--policy", "x.py:f"], "policies are chosen by name"),
    ):
        try:
            code = main(wrong)
        except SystemExit as error:
            code = int(error.code or 0)
        assert code == 2
        assert said in capsys.readouterr().err


@pytest.mark.long
def test_documented_lab_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[3] / "docs" / "lab.md").read_text(encoding="utf-8")
    exec(text.split("```python\n")[1].split("```")[0], {})
    assert [path.name for path in tmp_path.iterdir()] == ["lab.html"]
