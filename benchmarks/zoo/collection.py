"""Models of other people's packages as they come: the survey's subjects.

A row is a model with random weights and a batch; nothing is loaded, nothing is adapted: the loss is
what the model returns, or a function given beside it, as a user would give it. Sizes are those at
which a training step takes some ten megabytes, which a meter of the process can see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo.entry import loss_of

CLASSES = 10
BATCH, LENGTH, VOCABULARY = 2, 128, 512


@dataclass(frozen=True, slots=True)
class Subject:
    """A model in training, a batch, and how a loss comes of them.

    Attributes:
        model: the module.
        args, named: the arguments of forward.
        loss: a function of what forward returns, and of the targets; None if that has the loss.
        targets: what the loss function takes beside it.
        within: the context in which steps run, such as autocast.
    """

    model: nn.Module
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[..., Any] | None = None
    targets: Any = ()
    within: Callable[[], AbstractContextManager[Any]] = nullcontext


# Vision ------------------------------------------------------------------------------------------


def images(size: int, batch: int = BATCH) -> Tensor:
    """Return images of that many pixels a side."""
    return torch.randn(batch, 3, size, size)


def classified(model: nn.Module, *args: Any) -> Subject:
    """Return a classifier under cross entropy."""
    labels = torch.randint(CLASSES, (len(args[0]),))
    return Subject(model, args, loss=cross_entropy, targets=labels)


def cross_entropy(output: Any, labels: Tensor) -> Tensor:
    """Cross entropy, of heads beside the last one too."""
    heads = output if isinstance(output, tuple | list) else [output]
    return torch.stack([functional.cross_entropy(each.float(), labels) for each in heads]).sum()


def torchvision_classifier(name: str, size: int = 64, **options: Any) -> Subject:
    """A classifier of torchvision."""
    models = import_module("torchvision.models")
    return classified(models.get_model(name, num_classes=CLASSES, **options), images(size))


def torchvision_maps(name: str) -> Subject:
    """A segmentation model of torchvision, whose output is a dict."""
    models = import_module("torchvision.models")
    model = models.get_model(name, weights_backbone=None, num_classes=CLASSES)
    labels = torch.randint(CLASSES, (BATCH, 64, 64))
    return Subject(
        model, (images(64),), loss=lambda out, wanted: functional.cross_entropy(out["out"], wanted),
        targets=labels,
    )  # fmt: skip


def torchvision_video(name: str) -> Subject:
    """A classifier of clips."""
    models = import_module("torchvision.models")
    model = models.get_model(name, num_classes=CLASSES)
    return classified(model, torch.randn(1, 3, 8, 64, 64))


def torchvision_detector(name: str) -> Subject:
    """A detector of torchvision: lists in, a dict of losses out."""
    models = import_module("torchvision.models")
    model = models.get_model(
        name, weights=None, weights_backbone=None, num_classes=CLASSES, min_size=64, max_size=64
    )
    boxes = torch.tensor([[4.0, 4.0, 40.0, 50.0]])
    wanted = {"boxes": boxes, "labels": torch.ones(1, dtype=torch.long)}
    return Subject(model, ([images(64)[0]], [wanted]), loss=lambda out: sum(out.values()))


def raft() -> Subject:
    """RAFT: optical flow, in a list of refinements."""
    model = import_module("torchvision.models.optical_flow").raft_small()
    frames = images(128, 1), images(128, 1)
    return Subject(model, (*frames, 2), loss=loss_of)


def timm_classifier(name: str, size: int = 64, **options: Any) -> Subject:
    """A classifier of timm; those with a fixed size of images are told ours."""
    timm = import_module("timm")
    model = timm.create_model(name, num_classes=CLASSES, **options)
    return classified(model, images(size))


# Language, speech, several at once ---------------------------------------------------------------

WIDTHS = {
    "vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 4, "max_position_embeddings": 512, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPS = {"num_key_value_heads": 2, "head_dim": 32, "use_cache": False}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
SEQUENCES = {
    "vocab_size": VOCABULARY, "d_model": 128, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256, "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2, "use_cache": False,
}  # fmt: skip
SIDES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 4}  # fmt: skip
ENCODED = {"image_size": 64, "patch_size": 8, "num_labels": CLASSES}


def tokens(length: int = LENGTH) -> Tensor:
    """Return tokens, none of which is special."""
    return torch.randint(3, VOCABULARY, (BATCH, length))


def transformer(
    kind: str, *, masked: bool = False, length: int = LENGTH, **options: Any
) -> Subject:
    """A language model of transformers by the name of its class, from its configuration."""
    model_class = getattr(import_module("transformers"), kind)
    model = model_class(model_class.config_class(**options))
    batch = {"input_ids": tokens(length), "labels": tokens(length)}
    if masked:
        batch["attention_mask"] = torch.ones(BATCH, length, dtype=torch.long)
        batch["attention_mask"][1, -9:] = 0
    return Subject(model, named=batch)


def transformer_of_images(kind: str, **options: Any) -> Subject:
    """A classifier of images of transformers."""
    model_class = getattr(import_module("transformers"), kind)
    model = model_class(model_class.config_class(**options))
    size = options.get("image_size", 64)
    return Subject(
        model,
        named={"pixel_values": images(size), "labels": torch.randint(CLASSES, (BATCH,))},
    )


def segformer() -> Subject:
    """SegFormer: maps of classes."""
    tf = import_module("transformers")
    config = tf.SegformerConfig(
        hidden_sizes=[16, 32, 32, 64], depths=[1, 1, 1, 1], decoder_hidden_size=32,
        num_labels=CLASSES,
    )  # fmt: skip
    labels = torch.randint(CLASSES, (BATCH, 64, 64))
    model = tf.SegformerForSemanticSegmentation(config)
    return Subject(model, named={"pixel_values": images(64), "labels": labels})


def whisper() -> Subject:
    """Whisper: sound in, words out."""
    tf = import_module("transformers")
    options = {key: value for key, value in SEQUENCES.items() if key != "max_position_embeddings"}
    config = tf.WhisperConfig(**options, max_source_positions=128, max_target_positions=LENGTH)
    sound = torch.randn(BATCH, 80, 256)
    model = tf.WhisperForConditionalGeneration(config)
    return Subject(model, named={"input_features": sound, "labels": tokens(64)})


def speech(kind: str, **options: Any) -> Subject:
    """A recogniser of letters in waves."""
    model_class = getattr(import_module("transformers"), kind)
    config = model_class.config_class(
        vocab_size=32, **SIDES, conv_dim=(32, 32), conv_kernel=(10, 3), conv_stride=(5, 2),
        num_feat_extract_layers=2, num_conv_pos_embeddings=16, **options,
    )  # fmt: skip
    batch = {"input_values": torch.randn(BATCH, 4000), "labels": torch.randint(3, 32, (BATCH, 10))}
    return Subject(model_class(config), named=batch)


def clip() -> Subject:
    """CLIP, with its contrastive loss."""
    tf = import_module("transformers")
    config = tf.CLIPConfig(
        text_config=SIDES | {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH},
        vision_config=SIDES | {"image_size": 64, "patch_size": 8},
    )
    batch = {"input_ids": tokens(), "pixel_values": images(64), "return_loss": True}
    return Subject(tf.CLIPModel(config), named=batch)


def lora(make: Callable[[], Subject], **options: Any) -> Subject:
    """A model under peft's LoRA: all that it had is frozen."""
    peft = import_module("peft")
    subject = make()
    adapted = peft.get_peft_model(subject.model, peft.LoraConfig(r=4, **options))
    return Subject(adapted, subject.args, subject.named, subject.loss, subject.targets)


def autocast(make: Callable[[], Subject], dtype: torch.dtype = torch.bfloat16) -> Subject:
    """A model whose steps run under autocast."""
    subject = make()

    class Cast(nn.Module):
        """What a training loop does around forward."""

        def __init__(self) -> None:
            super().__init__()
            self.model = subject.model

        def forward(self, *args: Any, **named: Any) -> Any:
            with torch.autocast("cpu", dtype):
                return self.model(*args, **named)

    return Subject(Cast(), subject.args, subject.named, subject.loss, subject.targets)


def bfloat(make: Callable[[], Subject]) -> Subject:
    """A model in bfloat16 throughout."""
    subject = make()

    def half(value: Any) -> Any:
        floating = isinstance(value, Tensor) and value.is_floating_point()
        return value.bfloat16() if floating else value

    return Subject(
        subject.model.bfloat16(), tuple(map(half, subject.args)),
        {key: half(value) for key, value in subject.named.items()}, subject.loss, subject.targets,
    )  # fmt: skip


# Diffusion, recurrence, graphs -------------------------------------------------------------------


def diffused(name: str, inputs: Callable[[], Mapping[str, Any]], **options: Any) -> Subject:
    """A model of diffusers; the loss is the mean square of what it predicts."""
    model = getattr(import_module("diffusers"), name)(**options)
    return Subject(model, named=inputs(), loss=lambda out: out[0].square().mean())


class Recurrent(nn.Module):
    """A language model over a recurrent network."""

    def __init__(self, cell: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 64)
        self.cells = cell(64, 64, 2, batch_first=True, **options)
        self.head = nn.LazyLinear(VOCABULARY)
        self.head(self.cells(self.embedding(torch.zeros(1, 1, dtype=torch.long)))[0])

    def forward(self, words: Tensor) -> Tensor:
        found: Tensor = self.head(self.cells(self.embedding(words))[0])
        return found


def recurrent(cell: type[nn.RNNBase], **options: Any) -> Subject:
    """A recurrent language model under cross entropy."""
    model = Recurrent(cell, **options)
    return Subject(
        model, (tokens(),),
        loss=lambda out, wanted: functional.cross_entropy(out.flatten(0, 1), wanted),
        targets=tokens().flatten(),
    )  # fmt: skip


def geometric(name: str, **options: Any) -> Subject:
    """A graph network of PyG on a random graph of 400 vertices."""
    model = getattr(import_module("torch_geometric.nn"), name)(
        64, 128, num_layers=3, out_channels=CLASSES, **options
    )
    edges = torch.randint(400, (2, 3000))
    labels = torch.randint(CLASSES, (400,))
    return Subject(
        model, (torch.randn(400, 64), edges), loss=functional.cross_entropy, targets=labels
    )  # fmt: skip


def torch_transformer() -> Subject:
    """PyTorch's own encoder and decoder."""
    model = nn.Transformer(128, 4, 2, 2, 256, batch_first=True)
    drawn = torch.randn(BATCH, LENGTH, 128), torch.randn(BATCH, LENGTH, 128)
    return Subject(model, drawn, loss=lambda out: out.square().mean())


# The table ---------------------------------------------------------------------------------------

Rows = Iterator[tuple[str, Callable[[], Subject]]]


def of_torchvision() -> Rows:
    """Each family once, some twice."""
    for name in (
        "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s",
        "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_y_400mf", "resnet18",
        "resnet50", "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_1", "swin_t",
        "swin_v2_t", "vgg11_bn", "wide_resnet50_2",
    ):  # fmt: skip
        yield name, partial(torchvision_classifier, name)
    yield "googlenet", partial(torchvision_classifier, "googlenet", init_weights=False)
    yield "inception_v3", partial(torchvision_classifier, "inception_v3", 299, init_weights=False)
    yield "vit_b_32", partial(torchvision_classifier, "vit_b_32", image_size=64)
    for name in ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large"):
        yield name, partial(torchvision_maps, name)
    for name in ("r3d_18", "mc3_18", "r2plus1d_18", "swin3d_t"):
        yield name, partial(torchvision_video, name)
    for name in ("retinanet_resnet50_fpn", "fasterrcnn_mobilenet_v3_large_320_fpn"):
        yield name, partial(torchvision_detector, name)
    yield "raft_small", raft


FIXED = {"img_size": 64}


def of_timm() -> Rows:
    """timm's families, the odd ones first of all."""
    free = (
        "convmixer_1024_20_ks9_p14", "cs3darknet_s", "cspresnet50", "dla34", "dpn48b",
        "ecaresnet50d", "edgenext_xx_small", "efficientformerv2_s0:224", "efficientvit_b0",
        "ese_vovnet19b_slim", "fastvit_t8", "focalnet_tiny_srf", "ghostnet_100", "halonet26t:256",
        "hgnet_tiny", "hrnet_w18_small", "inception_next_atto", "lambda_resnet26t",
        "mambaout_femto", "mobilenetv4_conv_small", "mobilevit_xxs", "mobileone_s0", "nfnet_l0",
        "poolformer_s12", "pvt_v2_b0", "regnetz_b16", "repvit_m0_9", "res2net50_26w_4s",
        "resnest14d", "rexnet_100", "seresnet18", "skresnet18", "starnet_s1",
        "tf_efficientnetv2_b0", "xcit_nano_12_p16_224",
    )  # fmt: skip
    for entry in free:
        name, _, size = entry.partition(":")
        yield name, partial(timm_classifier, name, int(size or 64))
    for name in (
        "beit_base_patch16_224", "cait_xxs24_224", "coat_tiny", "deit_tiny_patch16_224",
        "eva02_tiny_patch14_336", "gmixer_24_224", "gmlp_ti16_224", "mixer_s32_224",
        "resmlp_12_224", "vit_small_patch32_224", "volo_d1_224", "twins_pcpvt_small",
    ):  # fmt: skip
        size = 70 if "patch14" in name else 64
        yield name, partial(timm_classifier, name, size, img_size=size)
    for name in ("crossvit_9_240:240", "levit_128s:224", "nest_tiny:224", "pit_ti_224:224",
                 "tiny_vit_5m_224:224", "visformer_tiny:224", "maxvit_pico_rw_256:256",
                 "coatnet_pico_rw_224:224"):  # fmt: skip
        short, _, size = name.partition(":")
        yield short, partial(timm_classifier, short, int(size))


def of_transformers() -> Rows:
    """Encoders, decoders, encoder-decoders, images, speech, state space."""
    decoder = partial(partial, transformer, **WIDTHS, **GROUPS)
    yield "Llama", decoder("LlamaForCausalLM")
    yield "Llama, padded", decoder("LlamaForCausalLM", masked=True)
    yield "Llama, 512 tokens", decoder("LlamaForCausalLM", length=512)
    yield "Llama, eager attention", decoder("LlamaForCausalLM", attn_implementation="eager")
    yield "Qwen2", decoder("Qwen2ForCausalLM")
    yield "Qwen3", decoder("Qwen3ForCausalLM", tie_word_embeddings=True)
    yield "Mistral, sliding window", decoder("MistralForCausalLM", sliding_window=64)
    yield "Gemma 2", decoder("Gemma2ForCausalLM", sliding_window=64)
    yield "Gemma 3", decoder("Gemma3ForCausalLM", sliding_window=64)
    yield "OLMo 2", decoder("Olmo2ForCausalLM")
    yield "Phi-3", decoder("Phi3ForCausalLM")
    yield "Granite", decoder("GraniteForCausalLM")
    yield "SmolLM 3", decoder("SmolLM3ForCausalLM")
    yield "Cohere", decoder("CohereForCausalLM")
    yield "Mixtral", decoder("MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2)
    yield "Qwen3-MoE", decoder("Qwen3MoeForCausalLM", **EXPERTS)
    yield "OLMoE", decoder("OlmoeForCausalLM", num_experts=4, num_experts_per_tok=2)
    yield "GPT-NeoX", partial(transformer, "GPTNeoXForCausalLM", **WIDTHS, use_cache=False)
    yield "Falcon", partial(
        transformer, "FalconForCausalLM", vocab_size=VOCABULARY, hidden_size=128,
        num_hidden_layers=4, num_attention_heads=4, use_cache=False,
    )  # fmt: skip
    yield "BLOOM", partial(
        transformer, "BloomForCausalLM", vocab_size=VOCABULARY, hidden_size=128, n_layer=4,
        n_head=4, use_cache=False,
    )  # fmt: skip
    yield "OPT", partial(
        transformer, "OPTForCausalLM", masked=True, vocab_size=VOCABULARY, hidden_size=128,
        num_hidden_layers=4, num_attention_heads=4, ffn_dim=256, word_embed_proj_dim=128,
        use_cache=False,
    )  # fmt: skip
    yield "GPT-2", partial(
        transformer, "GPT2LMHeadModel", vocab_size=VOCABULARY, n_embd=128, n_layer=4, n_head=4,
        use_cache=False,
    )  # fmt: skip
    yield "Mamba", partial(
        transformer, "MambaForCausalLM", vocab_size=VOCABULARY, hidden_size=64,
        num_hidden_layers=2, use_cache=False, length=64,
    )  # fmt: skip
    for kind in ("Bert", "Roberta", "Electra", "ConvBert", "MPNet", "ModernBert", "DebertaV2"):
        yield kind, partial(transformer, f"{kind}ForMaskedLM", masked=True, **WIDTHS)
    yield "ALBERT", partial(transformer, "AlbertForMaskedLM", **WIDTHS, embedding_size=64)
    yield "DistilBERT", partial(
        transformer, "DistilBertForMaskedLM", vocab_size=VOCABULARY, dim=128, hidden_dim=256,
        n_layers=4, n_heads=4,
    )  # fmt: skip
    yield "T5", partial(
        transformer, "T5ForConditionalGeneration", vocab_size=VOCABULARY, d_model=128, d_kv=32,
        d_ff=256, num_layers=2, num_heads=4, decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip
    for kind in ("Bart", "MBart", "Pegasus", "M2M100"):
        yield kind, partial(transformer, f"{kind}ForConditionalGeneration", **SEQUENCES)
    yield "Whisper", whisper
    yield "wav2vec 2", partial(speech, "Wav2Vec2ForCTC")
    yield (
        "wav2vec 2 without LayerDrop",
        partial(speech, "Wav2Vec2ForCTC", layerdrop=0.0, mask_time_prob=0.0),
    )
    yield "CLIP", clip
    yield "ViT", partial(transformer_of_images, "ViTForImageClassification", **ENCODED, **SIDES)
    yield "DeiT", partial(transformer_of_images, "DeiTForImageClassification", **ENCODED, **SIDES)
    yield "DINOv2", partial(
        transformer_of_images, "Dinov2ForImageClassification", **ENCODED, hidden_size=64,
        num_hidden_layers=2, num_attention_heads=4,
    )  # fmt: skip
    yield "Swin", partial(
        transformer_of_images, "SwinForImageClassification", image_size=64, embed_dim=24,
        depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=CLASSES,
    )  # fmt: skip
    yield "ConvNeXt V2", partial(
        transformer_of_images, "ConvNextV2ForImageClassification", hidden_sizes=[16, 32, 64],
        depths=[1, 2, 1], num_stages=3, num_labels=CLASSES,
    )  # fmt: skip
    yield (
        "ResNet of transformers",
        partial(transformer_of_images, "ResNetForImageClassification", num_labels=CLASSES),
    )
    yield "SegFormer", segformer


def llama() -> Subject:
    """The decoder that others are derived from."""
    return transformer("LlamaForCausalLM", **WIDTHS, **GROUPS)


def of_training() -> Rows:
    """Ways of training: adapters, types."""
    yield "LoRA on Llama", partial(lora, llama, task_type="CAUSAL_LM")
    yield (
        "LoRA on GPT-2",
        partial(lora, dict(of_transformers())["GPT-2"], task_type="CAUSAL_LM", fan_in_fan_out=True),
    )
    yield "Llama, autocast to bfloat16", partial(autocast, llama)
    yield "Llama in bfloat16", partial(bfloat, llama)
    yield "BERT, autocast to bfloat16", partial(autocast, dict(of_transformers())["Bert"])
    yield (
        "ResNet-18, autocast to bfloat16",
        partial(autocast, partial(torchvision_classifier, "resnet18")),
    )
    yield (
        "ViT, autocast to float16",
        partial(autocast, dict(of_transformers())["ViT"], torch.float16),
    )


def noise(channels: int, size: int = 16) -> dict[str, Any]:
    """Return noisy images and their times."""
    return {
        "sample": torch.randn(BATCH, channels, size, size),
        "timestep": torch.randint(1000, (BATCH,)),
    }


def of_diffusers() -> Rows:
    """U-Nets, transformers, an autoencoder."""
    blocks = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}
    yield "UNet2DModel", partial(
        diffused, "UNet2DModel", partial(noise, 3, 32), sample_size=32, **blocks,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8,
    )  # fmt: skip
    yield "UNet2DConditionModel", partial(
        diffused, "UNet2DConditionModel",
        lambda: noise(4, 32) | {"encoder_hidden_states": torch.randn(BATCH, 8, 32)},
        sample_size=32, cross_attention_dim=32, attention_head_dim=8, **blocks,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    yield "DiTTransformer2DModel", partial(
        diffused, "DiTTransformer2DModel",
        lambda: {
            "hidden_states": torch.randn(BATCH, 4, 16, 16),
            "timestep": torch.randint(1000, (BATCH,)), "class_labels": torch.zeros(BATCH).long(),
        },
        num_attention_heads=4, attention_head_dim=16, num_layers=4, sample_size=16,
    )  # fmt: skip
    yield "AutoencoderKL", partial(
        diffused, "AutoencoderKL", lambda: {"sample": images(32)}, **blocks, sample_size=32,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip


def of_others() -> Rows:
    """PyTorch's own, recurrent networks, graph networks."""
    yield "nn.Transformer", torch_transformer
    yield "LSTM", partial(recurrent, nn.LSTM)
    yield "LSTM, projected", partial(recurrent, nn.LSTM, proj_size=32)
    yield "GRU, both directions", partial(recurrent, nn.GRU, bidirectional=True)
    yield "RNN, dropout", partial(recurrent, nn.RNN, dropout=0.1)
    for name in ("GCN", "GraphSAGE", "GIN", "GAT", "EdgeCNN"):
        yield name, partial(geometric, name)


TABLES: Sequence[tuple[str, Callable[[], Rows]]] = (
    ("torchvision", of_torchvision), ("timm", of_timm), ("transformers", of_transformers),
    ("peft, autocast", of_training), ("diffusers", of_diffusers),
    ("PyTorch, PyG", of_others),
)  # fmt: skip
SUBJECTS = {
    f"{group}: {name}": make for group, rows in TABLES for name, make in rows()
}  # fmt: skip
