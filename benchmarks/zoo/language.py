"""Models of Hugging Face transformers (language, speech, multimodal), small, random weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers as tf
from torch import Tensor

from benchmarks.zoo.entry import Entry, Example, Scored

VOCABULARY, BATCH, LENGTH = 120, 2, 32
WIDTH, HIDDEN, LAYERS, HEADS = 32, 64, 2, 4
DECODER = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = DECODER | {"num_key_value_heads": 2, "head_dim": 8}
UNDROPPED = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def tokens(length: int = LENGTH) -> Tensor:
    """Return tokens, none of which is special."""
    return torch.randint(3, VOCABULARY, (BATCH, length))


def words(kind: str, length: int = LENGTH, **options: Any) -> Example:
    """Return a language model by the name of its class, with tokens and labels."""
    model_class = getattr(tf, kind)
    model = model_class(model_class.config_class(**options))
    return Scored(model, "input_ids", "labels"), (tokens(length), tokens(length))


def pictures(kind: str, size: int = 32, **options: Any) -> Example:
    """Return a classifier of images, with images and labels."""
    model_class = getattr(tf, kind)
    config = model_class.config_class(num_labels=5, image_size=size, **options)
    drawn = torch.randn(BATCH, 3, size, size), torch.randint(5, (BATCH,))
    return Scored(model_class(config), "pixel_values", "labels"), drawn


def whisper() -> Example:
    """Return Whisper: sound in, words out."""
    config = tf.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=8, d_model=WIDTH, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=HIDDEN,
        decoder_ffn_dim=HIDDEN, max_source_positions=32, max_target_positions=LENGTH,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    model = tf.WhisperForConditionalGeneration(config)
    return Scored(model, "input_features", "labels"), (torch.randn(BATCH, 8, 64), tokens())


def wav2vec2() -> Example:
    """Return wav2vec 2: sound in, letters out, with parts of the input masked."""
    config = tf.Wav2Vec2Config(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS,
        intermediate_size=HIDDEN, conv_dim=(16, 16), conv_stride=(5, 4), conv_kernel=(10, 8),
        num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
        pad_token_id=0,
    )  # fmt: skip
    model = tf.Wav2Vec2ForCTC(config)
    labels = torch.randint(3, VOCABULARY, (BATCH, 8))
    return Scored(model, "input_values", "labels"), (torch.randn(BATCH, 2000), labels)


def clip() -> Example:
    """Return CLIP, with its contrastive loss."""
    tower = {
        "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": 2,
        "num_attention_heads": HEADS, "projection_dim": 16,
    }  # fmt: skip
    text = tower | {
        "vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    config = tf.CLIPConfig(
        text_config=text, vision_config=tower | {"image_size": 32, "patch_size": 8},
        projection_dim=16,
    )  # fmt: skip
    drawn = tokens(), torch.randn(BATCH, 3, 32, 32)
    return Scored(tf.CLIPModel(config), "input_ids", "pixel_values", return_loss=True), drawn


def mamba() -> Example:
    """Return Mamba, whose states are kept for each token."""
    return words(
        "MambaForCausalLM", 8, vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=2,
        state_size=4, intermediate_size=HIDDEN, time_step_rank=4, pad_token_id=0,
    )  # fmt: skip


tf.logging.set_verbosity_error()  # of kernels that are not installed, and the like

T5 = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 8, "d_ff": HIDDEN, "num_layers": 1,
    "num_decoder_layers": 2, "num_heads": HEADS, "decoder_start_token_id": 0,
}  # fmt: skip
BART = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": HIDDEN,
    "decoder_ffn_dim": HIDDEN, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2,
}  # fmt: skip
GPT2 = {
    "vocab_size": VOCABULARY, "n_positions": 64, "n_embd": WIDTH, "n_layer": LAYERS,
    "n_head": HEADS, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
STILL = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def entry(make: Callable[..., Example], kind: str, /, **options: Any) -> Callable[[], Example]:
    """Return what makes a model of a kind from a configuration."""
    return partial(make, kind, **options)


TRANSFORMERS: dict[str, Entry] = {
    "GPT-2": Entry(entry(words, "GPT2LMHeadModel", **GPT2)),
    "GPT-2 without dropout": Entry(entry(words, "GPT2LMHeadModel", **GPT2, **STILL), large=True),
    "Llama": Entry(entry(words, "LlamaForCausalLM", **GROUPED)),
    "Llama without a cache": Entry(entry(words, "LlamaForCausalLM", **GROUPED, use_cache=False)),
    "Qwen3, tied": Entry(entry(words, "Qwen3ForCausalLM", **GROUPED, tie_word_embeddings=True)),
    "Mistral": Entry(entry(words, "MistralForCausalLM", **GROUPED, sliding_window=16), large=True),
    "Mixtral": Entry(
        entry(words, "MixtralForCausalLM", **GROUPED, num_local_experts=4, num_experts_per_tok=2)
    ),
    "Mixtral, batched products": Entry(
        entry(
            words,
            "MixtralForCausalLM",
            **GROUPED,
            num_local_experts=4,
            num_experts_per_tok=2,
            experts_implementation="batched_mm",
        ),
        large=True,
    ),
    "Gemma 2": Entry(entry(words, "Gemma2ForCausalLM", **GROUPED, sliding_window=16), large=True),
    "Mamba": Entry(mamba, large=True),
    "BERT": Entry(entry(words, "BertForMaskedLM", **DECODER, **UNDROPPED)),
    "RoBERTa": Entry(entry(words, "RobertaForMaskedLM", **DECODER), large=True),
    "ALBERT": Entry(entry(words, "AlbertForMaskedLM", **DECODER, embedding_size=16, **UNDROPPED)),
    "DistilBERT": Entry(
        entry(
            words,
            "DistilBertForMaskedLM",
            vocab_size=VOCABULARY,
            dim=WIDTH,
            hidden_dim=HIDDEN,
            n_layers=LAYERS,
            n_heads=HEADS,
            max_position_embeddings=64,
        ),
        large=True,
    ),
    "ModernBERT": Entry(
        entry(
            words,
            "ModernBertForMaskedLM",
            **DECODER,
            local_attention=16,
            cls_token_id=1,
            sep_token_id=2,
        )
    ),
    "T5": Entry(entry(words, "T5ForConditionalGeneration", **T5, dropout_rate=0.0)),
    "BART": Entry(entry(words, "BartForConditionalGeneration", **BART)),
    "Whisper": Entry(whisper, large=True),
    "wav2vec 2": Entry(
        wav2vec2,
        traced="_local_scalar_dense",
        advised="_local_scalar_dense",
        reason="its course depends on the numbers in tensors",
    ),
    "CLIP": Entry(clip, large=True),
    "ViT of transformers": Entry(
        entry(
            pictures,
            "ViTForImageClassification",
            patch_size=8,
            hidden_size=WIDTH,
            intermediate_size=HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
        ),
        large=True,
    ),
    "Swin of transformers": Entry(
        entry(
            pictures,
            "SwinForImageClassification",
            size=64,
            patch_size=4,
            embed_dim=16,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=4,
        ),
        large=True,
    ),
    "ConvNext of transformers": Entry(
        entry(
            pictures,
            "ConvNextForImageClassification",
            size=64,
            hidden_sizes=[8, 16, 32],
            depths=[1, 2, 1],
            num_stages=3,
        ),
        large=True,
    ),
}
