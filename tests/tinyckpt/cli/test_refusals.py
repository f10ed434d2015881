"""Command line: wrong usage is refused with exit code 2 and one sentence, before any work."""

import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.conftest import require
from tests.tinyckpt.cli.test_cli import run

GIF = "gif chain:4 -o x.gif"
PIPE = "pipe mlp:4x8 --stages 2 --micro-batches 4"
TECHNIQUES = "compare mlp:2x8 --techniques"
REFUSED = [
    ("", "the following arguments are required: COMMAND"),
    ("fly", "invalid choice: 'fly'"),
    ("plan sphere:3", "unknown network 'sphere:3'; known are chain:N"),
    ("plan chain:0", "layers=0; it must be at least 1"),
    ("plan chain:99999999999", "it must be at most 1,000,000"),
    ("plan mlp:3", "does not have the form mlp:LAYERSxWIDTH"),
    ("plan chain:4 --policy best", "unknown policy 'best'; known are store_all"),
    ("gif chain:4", "the following arguments are required: -o"),
    ("play chain:4", "the following arguments are required: -o"),
    ("play t.json -o x.html --policy sqrt_n", "a trace has its policy already"),
    ("play t.json -o x.html --set slots=5", "a trace has its policy already"),
    ("gif t.json -o x.gif --policy sqrt_n", "a trace has its policy already"),
    ("plan chain:4 --policy retain --keep h", "'h' is not a forward value"),
    ("plan chain:4 --policy=regions --keep h", "regions: 'h' is not a forward value"),
    ("plan chain:4 --segments 0", "there must be at least 1"),
    ("plan chain:4 --policy store_all --segments 2", "an option of sqrt_n"),
    ("compare chain:4 --keep f1", "an option of retain, regions, offload, which"),
    ("plan chain:4 --set slots", "expected OPTION=VALUE, such as slots=5"),
    ("plan chain:4 --set wings=2", "--set wings: no policy has this option"),
    ("plan chain:4 --set in_place=2", "in_place=2; expected True or False"),
    ("plan chain:4 --set improve=True", "an option of a plan for a budget without --policy"),
    ("compare chain:4 --set improve=True", "an option of a plan for a budget without --policy"),
    ("plan chain:4 --policy revolve --budget 4 --set improve=True", "a budget without --policy"),
    ("plan chain:4 --budget 3 --set order=late", "order='late'; expected 'free' or 'given'"),
    ("plan chain:4 --set slots=2", "--set slots is an option of revolve, which"),
    ("plan chain:4 --set budget=3", "--set budget=3: use --budget 3"),
    ("plan chain:4 --policy=saveable --set rule=a,b", "expected the name of one rule"),
    ("plan chain:4 --policy=dtr --set heuristic=a,b", "unknown heuristic"),
    ("plan chain:4 --policy sqrt_n --budget 3", "sqrt_n takes no budget"),
    ("plan chain:4 --frontier --policy dtr", "--frontier goes with --budget"),
    # Output files
    ("plan chain:4 -o t.xls", "it must end in .chrome.json, .json, .csv, .png"),
    ("plan chain:4 --frontier -o f.json", "it must end in .png, .svg, .pdf"),
    ("compare chain:4 -o t.gif", "it must end in .png, .svg, .pdf"),
    ("play chain:4 -o x.gif", "-o x.gif: it must end in .html, .htm"),
    ("gif chain:4 -o x.bmp", "-o x.bmp: it must end in .gif, .apng, .png"),
    (f"{TECHNIQUES} -o x.txt", "-o x.txt: it must end in .json, .png, .svg, .pdf"),
    (f"{PIPE} -o x.gif", "x.gif: it must end in .png, .svg, .pdf, .html, .htm"),
    # Pictures
    ("gif chain:4 -o x.png --still 3", "--still would overwrite x.png"),
    (f"{GIF} --still 99", "the steps are numbered 0 to 18"),
    (f"{GIF} --title=both --policy=sqrt_n --policy=dtr", "1 title for 2 traces"),
    (f"{GIF} --fps 0", "fps 0.0: expected 0.01 to 50"),
    (f"{GIF} --hold long", "argument --hold: 'long': expected seconds, such as 2"),
    (f"{GIF} --hold 1,-1", "hold (1.0, -1.0): expected"),
    (f"{GIF} --from 19", "step 19 is out of range: expected 0 to 18"),
    (f"{GIF} --from 9 --to 3", "no steps from 9 to 3"),
    (f"{GIF} --policy dtr --policy sqrt_n --align progress --to 9", "first and last count steps"),
    (f"{GIF} --every 0", "every 0: expected a positive integer"),
    (f"{GIF} --format bmp", "unknown format 'bmp'; known are gif, apng, webp, mp4"),
    (f"{GIF} --width 100", "width 100: expected 320 to 3840 pixels"),
    (f"{GIF} --aspect wide", "aspect 'wide': expected width:height such as 16:9"),
    (f"{GIF} --labels kind", "labels 'kind': expected name, symbol"),
    (f"{GIF} --labels f1=a,=b", "expected NAME=TEXT, with commas between them"),
    (f"{GIF} --labels nobody=b", "labels: no operator has the id or name 'nobody'"),
    (f"{GIF} --group scope", "group 'scope': chain:4 has no scopes that divide it"),
    (f"{GIF} --seconds 3 --fps 8", "fps 8.0 and seconds 3.0: give one of them"),
    # Techniques
    (f"{TECHNIQUES} --policy sqrt_n", "--policy is about policies"),
    (f"{TECHNIQUES} --segments 0", "--segments is about policies"),
    (f"{TECHNIQUES} --set slots=3", "--set is about policies"),
    (f"{TECHNIQUES} --bandwidth -1", "--bandwidth -1.0: it must be 0 or more"),
    (f"{TECHNIQUES} --bandwidth nan", "--bandwidth nan: it must be 0 or more"),
    (f"{TECHNIQUES} --stages 0", "stages=0; it must be an integer of 1 or more"),
    ("compare mlp:2x8 --stages 3", "--stages goes with --techniques"),
    ("compare mlp:2x8 --bandwidth 3", "--bandwidth goes with --techniques"),
    ("compare mpl:2x8 --techniques", "did you mean mlp"),
    # A pipeline
    ("pipe mlp:4x8 --micro-batches 4", "arguments are required: --stages; a launcher knows it"),
    ("pipe chain:4 --stages 9 --micro-batches 4", "it can be cut into 1 to 4 stages"),
    ("pipe chain:4 --stages 2 --micro-batches 0", "1f1b: micro-batches=0"),
    (
        "pipe chain:8 --stages 2 --micro-batches 3 --schedule interleaved",
        "it needs a multiple of 2, such as 4",
    ),
    (f"{PIPE} --theme auto -o x.png", "--theme auto: a chart is light or dark"),
    (f"{PIPE} --theme dark", "--theme dark is for what -o draws"),
    (f"{PIPE} --zero 2", "--zero 2 is for several --replicas"),
    (f"{PIPE} --zero 1 --replicas 2 --optimizer none", "--zero is about an --optimizer"),
    (f"{PIPE} --replicas 0", "--replicas 0: it must be 1 or more"),
    (f"{PIPE} --chunks 2", "--chunks is for --schedule interleaved, not 1f1b"),
    (f"{PIPE} --recompute early", "--recompute early: store_all computes nothing again"),
    (f"{PIPE} --recompute late --policy store_all", "--recompute late: store_all computes"),
    (f"{PIPE} --patience 3", "--patience is for what runs; start it by mpiexec"),
    (f"{PIPE} --steps 3", "--steps is for what runs"),
    (f"{PIPE} --rate 0.1", "--rate is for what runs"),
    (f"{PIPE} --policy sqrtn", "unknown policy 'sqrtn' (did you mean sqrt_n?)"),
]
MISSPELT = [
    ("plann chain:4", "(did you mean plan?)"),
    ("plan chian:4", "(did you mean chain?)"),
    ("plan resnet5", "(did you mean resnet50?)"),
    ("plan chain:4 --policy gredy", "(did you mean greedy?)"),
    ("compare chain:4 --policy sqrtn", "(did you mean sqrt_n?)"),
    ("play chain:4 sqrt_n -o x.html", "arguments: sqrt_n (did you mean --policy sqrt_n?)"),
    ("plan chain:4 --polcy dtr", "arguments: --polcy dtr (did you mean --policy?)"),
    ("plan chain:4 --explian", "(did you mean --explain?)"),
    ("plan chain:4 --cost flop", "(did you mean flops?)"),
    ("plan chain:4 --set slot=3", "no policy has this option (did you mean slots?)"),
    ("plan chain:4 --time-limit nan", "'nan': expected seconds, 0 or more"),
    ("plan chain:4 --time-limit=-1", "'-1': expected seconds, 0 or more"),
    ("plan chain:4 \x1b[2J", "unrecognized arguments: \\x1b[2J\n"),
    ("plan \x1b[2J", "unknown network '\\x1b[2J'; known are"),
]
LAUNCHED = [
    ("-o x.png", "a launcher runs one --schedule, and draws nothing with -o"),
    ("--schedule gpipe --schedule 1f1b", "a launcher runs one --schedule, and draws nothing"),
    ("--steps 3", "--steps is about an --optimizer, and there is none"),
    ("--rate 3", "--rate is about an --optimizer, and there is none"),
    ("--optimizer sgd --steps 0", "--steps 0: it must be 1 or more"),
    ("--optimizer sgd --steps 100000000", "at most 10,000,000 micro-batches total"),
    ("--optimizer sgd --rate nan", "--rate nan: it must be a number above 0"),
    ("--optimizer sgd --rate 0", "--rate 0.0: it must be a number above 0"),
    ("--patience inf", "--patience inf: it must be a number of seconds"),
    ("--patience 0", "--patience 0.0: it must be a number of seconds"),
]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in an empty folder, and leave it empty: nothing is written before a refusal."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


def check_refused(capsys: pytest.CaptureFixture[str], line: str, message: str) -> None:
    code, out, err = run(capsys, *shlex.split(line))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("error: ") == 1
    assert "\x1b" not in err


@pytest.mark.parametrize(("line", "message"), [*REFUSED, *MISSPELT])
def test_wrong_usage_exits_with_2(
    capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    if line.startswith("gif"):
        require("PIL")
    check_refused(capsys, line, message)


@pytest.mark.parametrize(("options", "message"), LAUNCHED)
def test_pipe_under_launcher_refuses_wrong_usage(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    message: str,
) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setattr(import_module("tinyckpt.cli.main"), "supervise", lambda: None)
    check_refused(capsys, f"{PIPE} {options}", message)
