"""Parameter counts and saved bytes of published networks equal the published figures."""

from pathlib import Path

import pytest

import tinyckpt as tc
from tests.tinyckpt.networks.small import SMALL, small
from tinyckpt import networks

# By the name on the command line; other sizes below.
PUBLISHED = {
    "lenet5": 61_706,
    "cnn100": 92_208_120,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "mobilenet": 4_231_976,
    "unet": 31_030_658,
    "vit": 86_567_656,
    "bert": 109_482_240,
    "roberta": 124_645_632,
    "gpt2": 124_439_808,
    "gpt2_large": 774_030_080,
    "llama7b": 6_738_415_616,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_equals_published(name: str) -> None:
    network = networks.network_or_graph(name)
    assert isinstance(network, networks.Network)
    assert network.parameter_count == PUBLISHED[name]


def test_other_depths_have_their_published_counts() -> None:
    assert networks.resnet(34).parameter_count == 21_797_672
    assert networks.resnet(101).parameter_count == 44_549_160
    assert networks.llama(40, 5120, hidden=13824).parameter_count == 13_015_864_320


def test_running_statistics_are_not_parameters() -> None:
    network = networks.resnet(50, statistics=True)
    assert network.parameter_count == 25_557_032
    # 26,560 channels are normalised: 53,120 scales and shifts, and as many statistics.
    assert sum(2 * layer["mean"].size for layer in network.specs[1]) == 53_120


def test_bert_classifier_adds_its_parameters() -> None:
    assert networks.bert(classes=3).parameter_count == 109_482_240 + 768 * 3 + 3


def test_cnn100_saved_bytes_per_image_equal_published() -> None:
    graph = networks.cnn100(batch=1).graph()
    forward = graph.operators[: graph.forward_count]
    images = graph.data[graph.arguments[1]]
    stem, *_ = (operator for operator in forward if operator.kind == "conv2d")
    found = {images.id, stem.outputs[0]}
    indices = set()
    for operator in forward:
        if operator.kind == "relu" or operator.kind.startswith("max_pool"):
            found.add(operator.outputs[0])
            indices.update(operator.outputs[1:])
    total = sum(graph.data[data].spec.nbytes for data in found)
    # PyTorch's indices are int64; here they are of one byte, the place within the window.
    assert total + sum(8 * graph.data[data].spec.size for data in indices) == 7_974_976
    assert {graph.data[data].spec.dtype.name for data in indices} == {"uint8"}
    # The backward half reads all of them, the last through its view as rows.
    read = {data for o in graph.operators[graph.forward_count :] for data in o.inputs}
    read |= {node.view_of for node in graph.data if node.id in read and node.view_of is not None}
    assert found | indices <= read


@pytest.mark.parametrize("name", SMALL)
def test_parameter_count_equals_graph(name: str) -> None:
    network = small(name)
    assert isinstance(network, networks.Network)
    graph = network.graph()
    assert sum(n.spec.size for n in graph.data if n.role == "parameter") == network.parameter_count


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: networks.vgg(17), "vgg: depth=17; it must be 11, 13, 16, 19"),
        (lambda: networks.vgg(16, size=100), "vgg16: size=100; it must be a multiple of 32"),
        (lambda: networks.resnet(51), "resnet: depth=51; it must be 18, 34, 50, 101, 152"),
        (lambda: networks.resnet([50]), r"resnet: depth=\[50\]; it must be 18, 34"),  # type: ignore[arg-type]
        (lambda: networks.vgg({}), "vgg: depth={}; it must be 11, 13, 16, 19"),  # type: ignore[arg-type]
        (lambda: networks.mlp(1, 8, activation=[]), r"unknown activation \[\]; known are "),  # type: ignore[arg-type]
        (lambda: networks.bert(offset="x"), "offset='x'; it must be an integer"),  # type: ignore[arg-type]
        (lambda: networks.network_from_text(Path("chain:4")), "expected a network's name, a text"),  # type: ignore[arg-type]
        (lambda: networks.gpt2(2.5), "gpt2:2.5x768: layers=2.5; it must be an integer"),  # type: ignore[arg-type]
        (lambda: networks.resnet(18, batch=0), "resnet18: batch=0; it must be at least 1"),
        (lambda: networks.mobilenet_v1(size=8), "mobilenet: size=8; it must be a multiple of 32"),
        (lambda: networks.unet_network(size=20), "unet: size=20; it must be a multiple of 16"),
        (lambda: networks.lenet5(size=12), "lenet5: size=12; it must be at least 16"),
        (lambda: networks.cnn100(layers=0), "cnn100: layers=0; it must be at least 1"),
        (lambda: networks.vit(patch=15), "size=224 must be a multiple of patch=15"),
        (lambda: networks.gpt2(width=770), "gpt2:12x770: width=770 must be a multiple of heads=12"),
        (lambda: networks.gpt2(length=1025), "length=1025; there are positions for 1024 tokens"),
        (lambda: networks.roberta(length=513), "length=513; there are positions for 512 tokens"),
        (lambda: networks.bert(classes=0), "classes=0; it must be at least 1"),
        (lambda: networks.bert(positions="long"), "positions='long'; it must be an integer"),  # type: ignore[arg-type]
        (lambda: networks.mlp(20_001, 8), "mlp:20001x8: layers=20,001; it must be at most 20,000"),
        (lambda: networks.chain(10**7), "layers=10,000,000; it must be at most 1,000,000"),
        (lambda: networks.chain(1.5), "chain:1.5: layers=1.5; it must be an integer"),  # type: ignore[arg-type]
        (lambda: networks.chain(2, shape=1.5), "shape 1.5: every dimension must be a non-negative"),  # type: ignore[arg-type]
        (lambda: networks.vit(width="wide"), "vit:12xwide: width='wide'; it must be an integer"),  # type: ignore[arg-type]
        (lambda: networks.transformer(length=10**6), "length=1,000,000; at most 16,384 are"),
        (lambda: networks.transformer(dtype="real"), "unknown dtype 'real'; expected one of"),
        (lambda: networks.llama(kv_heads=5), "heads=32 must be a multiple of kv_heads=5"),
    ],
)  # fmt: skip
def test_illegal_sizes_are_refused(make: object, message: str) -> None:
    with pytest.raises(tc.GraphError, match=message):
        make()  # type: ignore[operator]
