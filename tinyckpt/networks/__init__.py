"""Model zoo: published networks at any size, as loss functions with shapes of their arguments.

MLPs and the canonical chain; convolutional networks (LeNet-5, VGG, ResNet, MobileNet, U-Net);
transformers (GPT-2, BERT, RoBERTa, LLaMA, ViT). A network is shapes only until ``arrays`` allocates
parameters, so that models larger than this machine's memory plan, replay and draw.

>>> import tinyckpt as tc
>>> network = tc.networks.resnet(50, batch=32)
>>> network.parameter_count
25557032
"""

from tinyckpt.networks.bert import bert, bert_encoded, roberta
from tinyckpt.networks.chain import chain
from tinyckpt.networks.cnn100 import cnn100, cnn100_logits
from tinyckpt.networks.cnn_graphs import mobilenet, resnet50, unet, vgg16
from tinyckpt.networks.gpt2 import gpt2, gpt2_logits
from tinyckpt.networks.layers import inference, statistics_specs
from tinyckpt.networks.lenet import lenet5, lenet_logits
from tinyckpt.networks.llama import llama, llama_logits
from tinyckpt.networks.mobilenet import mobilenet_logits, mobilenet_v1
from tinyckpt.networks.network import Network, branching, mlp, random_arrays, residual_mlp
from tinyckpt.networks.registry import NETWORKS, network_from_text, network_or_graph
from tinyckpt.networks.resnet import resnet, resnet_logits
from tinyckpt.networks.transformer import transformer
from tinyckpt.networks.unet import unet_logits, unet_network
from tinyckpt.networks.vgg import vgg, vgg_logits
from tinyckpt.networks.vit import vit, vit_logits

__all__ = [
    "NETWORKS",
    "Network",
    "bert",
    "bert_encoded",
    "branching",
    "chain",
    "cnn100",
    "cnn100_logits",
    "gpt2",
    "gpt2_logits",
    "inference",
    "lenet5",
    "lenet_logits",
    "llama",
    "llama_logits",
    "mlp",
    "mobilenet",
    "mobilenet_logits",
    "mobilenet_v1",
    "network_from_text",
    "network_or_graph",
    "random_arrays",
    "residual_mlp",
    "resnet",
    "resnet50",
    "resnet_logits",
    "roberta",
    "statistics_specs",
    "transformer",
    "unet",
    "unet_logits",
    "unet_network",
    "vgg",
    "vgg16",
    "vgg_logits",
    "vit",
    "vit_logits",
]
