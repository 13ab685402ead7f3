"""Reading the weights of the architectures that `Transformer` computes.

Each reader takes a transformers model and returns None if the model uses an option that the
hand-written forward leaves out; such models, and all others, run through `HubDecoder`.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dragonrt.language.decoder import Geometry, LayerShape
from dragonrt.language.linear import Linear
from dragonrt.language.transformer import (
    FeedForward,
    GatedFeedForward,
    Layer,
    LayerNorm,
    Pointwise,
    RootMeanSquareNorm,
    Rotation,
    Transformer,
    Weights,
)

_FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")  # the others depend on the length
_ACTIVATIONS: dict[str, Pointwise] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
}


def transformer(model: Any) -> Transformer | None:
    """The hand-written decoder of a transformers model, or None if there is none for it."""
    reader = {"llama": _llama, "qwen2": _llama, "opt": _opt, "gpt2": _gpt2}.get(
        model.config.model_type
    )
    with torch.inference_mode():
        return None if reader is None else reader(model)


def _llama(model: Any) -> Transformer | None:
    """Llama and Qwen2: rotary positions, grouped keys, RMS norms, gated feed-forward."""
    config, body = model.config, model.model
    layer_types = getattr(config, "layer_types", None) or ()
    if (
        config.hidden_act != "silu"
        or config.rope_parameters["rope_type"] not in _FIXED_ROTATIONS
        or any(kind != "full_attention" for kind in layer_types)
    ):
        return None
    layers = []
    for block in body.layers:
        attention, mlp = block.self_attn, block.mlp
        layers.append(
            Layer(
                attention_norm=_rms_norm(block.input_layernorm),
                attention_in=_joined(attention.q_proj, attention.k_proj, attention.v_proj),
                attention_out=_joined(attention.o_proj),
                feed_forward_norm=_rms_norm(block.post_attention_layernorm),
                feed_forward=GatedFeedForward(
                    _joined(mlp.gate_proj, mlp.up_proj), _joined(mlp.down_proj)
                ),
            )
        )
    embedding = body.embed_tokens.weight
    context_length = config.max_position_embeddings
    positions = torch.arange(context_length, device=embedding.device)[None]
    cosines, sines = (table[0] for table in body.rotary_emb(embedding[:1, :1], positions))
    half = sines.shape[-1] // 2
    sines = torch.cat((-sines[:, :half], sines[:, half:]), dim=-1)
    weights = Weights(
        embedding=embedding,
        position_embedding=None,
        rotation=Rotation(cosines.contiguous(), sines),
        layers=tuple(layers),
        final_norm=_rms_norm(body.norm),
        heads=config.num_attention_heads,
        output=model.lm_head.weight,
    )
    head_dim = body.layers[0].self_attn.head_dim
    return _assemble(weights, config.num_key_value_heads, head_dim, context_length)


def _opt(model: Any) -> Transformer | None:
    """OPT: learned positions with an offset of two, layer norms before each part."""
    config, body = model.config, model.model.decoder
    if (
        not config.do_layer_norm_before
        or body.final_layer_norm is None
        or body.project_in is not None
        or not config.layer_norm_elementwise_affine
        or config.activation_function not in _ACTIVATIONS
    ):
        return None
    layers = []
    for block in body.layers:
        attention = block.self_attn
        layers.append(
            Layer(
                attention_norm=_layer_norm(block.self_attn_layer_norm),
                attention_in=_joined(attention.q_proj, attention.k_proj, attention.v_proj),
                attention_out=_joined(attention.out_proj),
                feed_forward_norm=_layer_norm(block.final_layer_norm),
                feed_forward=FeedForward(
                    _joined(block.fc1),
                    _ACTIVATIONS[config.activation_function],
                    _joined(block.fc2),
                ),
            )
        )
    weights = Weights(
        embedding=body.embed_tokens.weight,
        position_embedding=body.embed_positions.weight[body.embed_positions.offset :],
        rotation=None,
        layers=tuple(layers),
        final_norm=_layer_norm(body.final_layer_norm),
        heads=config.num_attention_heads,
        output=model.lm_head.weight,
    )
    head_dim = config.hidden_size // config.num_attention_heads
    return _assemble(weights, config.num_attention_heads, head_dim, config.max_position_embeddings)


def _gpt2(model: Any) -> Transformer | None:
    """GPT-2: learned positions, weights stored transposed, queries, keys and values joined."""
    config, body = model.config, model.transformer
    if (
        not config.scale_attn_weights
        or config.scale_attn_by_inverse_layer_idx
        or config.reorder_and_upcast_attn
        or config.add_cross_attention
        or config.activation_function not in _ACTIVATIONS
    ):
        return None
    layers = tuple(
        Layer(
            attention_norm=_layer_norm(block.ln_1),
            attention_in=_transposed(block.attn.c_attn),
            attention_out=_transposed(block.attn.c_proj),
            feed_forward_norm=_layer_norm(block.ln_2),
            feed_forward=FeedForward(
                _transposed(block.mlp.c_fc),
                _ACTIVATIONS[config.activation_function],
                _transposed(block.mlp.c_proj),
            ),
        )
        for block in body.h
    )
    weights = Weights(
        embedding=body.wte.weight,
        position_embedding=body.wpe.weight,
        rotation=None,
        layers=layers,
        final_norm=_layer_norm(body.ln_f),
        heads=config.n_head,
        output=model.lm_head.weight,
    )
    return _assemble(weights, config.n_head, config.n_embd // config.n_head, config.n_positions)


def _assemble(weights: Weights, key_heads: int, head_dim: int, context_length: int) -> Transformer:
    shape = LayerShape(heads=key_heads, key_dim=head_dim, value_dim=head_dim)
    geometry = Geometry(
        layers=(shape,) * len(weights.layers),
        vocabulary=weights.output.shape[0],
        hidden_size=weights.output.shape[1],
        context_length=context_length,
        dtype=weights.embedding.dtype,
        device=weights.embedding.device,
    )
    return Transformer(weights, geometry)


def _joined(*linears: nn.Linear) -> Linear:
    """Several products of the same input as one."""
    weights: list[Tensor] = [linear.weight for linear in linears]
    biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    return Linear(torch.cat(weights), torch.cat(biases) if biases else None)


def _transposed(convolution: Any) -> Linear:
    return Linear(convolution.weight.T, convolution.bias)


def _rms_norm(norm: Any) -> RootMeanSquareNorm:
    return RootMeanSquareNorm(norm.weight, norm.variance_epsilon)


def _layer_norm(norm: nn.LayerNorm) -> LayerNorm:
    weight: Tensor = norm.weight
    return LayerNorm(weight, norm.bias, norm.eps)
