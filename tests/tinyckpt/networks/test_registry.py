"""Model registry: names of networks on the command line."""

import pytest

import tinyckpt as tc
from tinyckpt.cli.main import main
from tinyckpt.networks import NETWORKS, Network, network_from_text, network_or_graph
from tinyckpt.networks.registry import UNPUBLISHED


@pytest.mark.sampled(10)
@pytest.mark.long
@pytest.mark.parametrize("name", NETWORKS)
def test_example_of_every_name_builds_training_graph(name: str) -> None:
    _, example, _ = NETWORKS[name]
    graph, specs = network_from_text(example)
    assert graph.gradients is not None
    assert len(specs) == len(graph.arguments)
    assert all(operator.primitive is not None for operator in graph.operators)
    if name not in UNPUBLISHED:
        alone, _ = network_from_text(name)  # a published network needs no sizes
        assert (alone.data, alone.operators) == (graph.data, graph.operators)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_name_but_chain_is_a_network(name: str) -> None:
    found = network_or_graph(NETWORKS[name][1])
    if name == "chain":
        assert isinstance(found, tc.Graph)
    else:
        assert isinstance(found, Network)
        assert callable(found.loss)


def test_sizes_follow_name() -> None:
    _, (_, tokens, labels) = network_from_text("gpt2:3x17")
    assert (tokens.shape, labels.shape) == ((3, 17), (3, 17))
    _, (_, images, _) = network_from_text("resnet18:2")
    assert images.shape == (2, 3, 224, 224)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpt2:3", "does not have the form gpt2:BATCHxLENGTH, such as gpt2:8x1024"),
        ("gpt2:1x1025", "there are positions for 1024 tokens"),
        ("resnet18:0", "batch=0; it must be at least 1"),
        ("resnet19", r"unknown network 'resnet19' \(did you mean resnet18\?\)"),
        ("mlp", "does not have the form mlp:LAYERSxWIDTH"),
        ("chain:" + "9" * 5000, "does not have the form chain:N, such as chain:16"),
    ],
)
def test_unknown_name_gives_clear_error(text: str, message: str) -> None:
    with pytest.raises(tc.GraphError, match=message):
        network_from_text(text)


def test_llama_7b_plans_on_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "llama7b:1x512", "--policy", "sqrt_n"]) == 0
    assert "sqrt_n on llama:32x4096: " in capsys.readouterr().out
