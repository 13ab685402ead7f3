"""Reading the weights of the architectures that `Transformer` computes.

Each reader takes a transformers model, whose weights may lie elsewhere (`LayerFactory`). It returns
None if the model uses an option that the hand-written forward leaves out. Such models, and all
others, run through `TransformersDecoder`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from dragonrt.backends.torch_.attention import AttentionForm
from dragonrt.backends.torch_.backend import Geometry, LayerShape
from dragonrt.backends.torch_.linear import Pointwise
from dragonrt.backends.torch_.transformer import (
    Layer,
    RootMeanSquareNorm,
    Rotation,
    Transformer,
    Weights,
    gated_feed_forward,
    layer_norm,
    projection_norm,
    sandwiched,
)
from dragonrt.backends.torch_.weights import LayerFactory

_FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")  # the others depend on the length
_SERIAL = 2**14 - 1
"""Of so many numbers torch gives no second thread a part."""
_AT_ONCE = 32
"""torch computes so many numbers together, and what is left of a thread's part one by one."""


def _by_rows(activation: Pointwise) -> Pointwise:
    """The activation of x [n, width], such that a row's bits depend on that row alone.

    One number alone is rounded in another way than many together: parts must end with rows.
    """

    def activated(x: Tensor) -> Tensor:
        rows, width = x.shape
        fits = max(1, _SERIAL // width)
        if width % _AT_ONCE and x.is_contiguous():
            fits = 1
        return (
            activation(x)
            if rows <= fits
            else torch.cat([activation(part) for part in torch.split(x, fits)])
        )

    return activated


_ACTIVATIONS: dict[str, Pointwise] = {
    "relu": functional.relu,
    "silu": _by_rows(functional.silu),
    "gelu": _by_rows(functional.gelu),
    "gelu_new": _by_rows(lambda x: functional.gelu(x, approximate="tanh")),
    "gelu_pytorch_tanh": _by_rows(lambda x: functional.gelu(x, approximate="tanh")),
}
_ROTARY = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "phi3",
    "smollm3",
    "olmo2",
    "gemma2",
    "gemma3_text",
)
_EVERY_LAYER_SLIDES = ("mistral", "phi3")  # if their configuration has a window


def transformer(model: Any, layers: LayerFactory | None = None) -> Transformer | None:
    """The hand-written decoder of a transformers model, or None if there is none for it.

    `layers` makes its layers, by default of the model's own weights as they are.
    """
    readers = dict.fromkeys(_ROTARY, _rotary) | {"opt": _opt, "gpt2": _gpt2}
    reader = readers.get(model.config.model_type)
    with torch.inference_mode():
        return None if reader is None else reader(model, layers or LayerFactory(model))


def _rotary(model: Any, make: LayerFactory) -> Transformer | None:
    """Llama and what came after it: rotary positions, RMS norms, gated feed-forward.

    The family's members differ in which norms a block has and where, in which layers look back
    how far, and in scales and caps.
    """
    config, body = model.config, model.model
    activation = getattr(config, "hidden_activation", None) or config.hidden_act
    by_kind = "rope_type" not in config.rope_parameters  # of layers (Gemma 3)
    kinds = sorted(set(config.layer_types)) if by_kind else [None]
    ropes = (
        [config.rope_parameters[kind] for kind in kinds] if by_kind else [config.rope_parameters]
    )
    if (
        activation not in _ACTIVATIONS
        or any(rope["rope_type"] not in _FIXED_ROTATIONS for rope in ropes)
        or getattr(config, "use_bidirectional_attention", False)
    ):
        return None
    embed, output = make.vocabulary(body.embed_tokens, model.lm_head)
    layers = tuple(
        _rotary_layer(
            make, config, block, kinds.index(config.layer_types[number]) if by_kind else 0
        )
        for number, block in enumerate(body.layers)
    )
    positions = torch.arange(config.max_position_embeddings, device=make.device)[None]
    weights = Weights(
        embed=embed,
        embedding_scale=getattr(body.embed_tokens, "scalar_embed_scale", 1.0),
        rotations=tuple(_rotation(make, body, positions, kind) for kind in kinds),
        layers=layers,
        final_norm=_rms_norm(make, body.norm),
        heads=config.num_attention_heads,
        output=output,
        filled_up=not make.form.groups,
        soft_cap=getattr(config, "final_logit_softcapping", None),
    )
    head_dim = body.layers[0].self_attn.head_dim
    context_length = config.max_position_embeddings
    return _assemble(weights, config.num_key_value_heads, head_dim, context_length)


def _rotary_layer(make: LayerFactory, config: Any, block: Any, rotation: int) -> Layer:
    attention, mlp = block.self_attn, block.mlp
    feed_forward = gated_feed_forward(
        make.joined(*_present(mlp, "gate_up_proj", "gate_proj", "up_proj")),
        _ACTIVATIONS[getattr(config, "hidden_activation", None) or config.hidden_act],
        make.joined(mlp.down_proj),
    )
    gemma = hasattr(block, "pre_feedforward_layernorm")
    norms = {name: _rms_norm(make, norm) for name, norm in block.named_children() if "norm" in name}
    after_attention = norms["post_attention_layernorm"]
    norms_behind = gemma or "input_layernorm" not in norms  # OLMo 2 has no norm before a part
    attention_out: Pointwise = make.joined(attention.o_proj)
    if norms_behind:
        attention_out = sandwiched(None, attention_out, after_attention)
    before = norms.get("pre_feedforward_layernorm") if norms_behind else after_attention
    window = getattr(attention, "sliding_window", None)
    if config.model_type in _EVERY_LAYER_SLIDES:
        window = config.sliding_window
    return Layer(
        attention_norm=norms.get("input_layernorm"),
        attention_in=make.joined(*_present(attention, "qkv_proj", "q_proj", "k_proj", "v_proj")),
        attention_out=attention_out,
        feed_forward=sandwiched(before, feed_forward, norms.get("post_feedforward_layernorm")),
        form=AttentionForm(
            scale=attention.scaling,
            window=window,
            soft_cap=attention.attn_logit_softcapping if config.model_type == "gemma2" else None,
        ),
        head_norm=_head_norm(make, config, attention),
        rotation=rotation if getattr(attention, "use_rope", True) else None,
    )


def _head_norm(make: LayerFactory, config: Any, attention: Any) -> Pointwise | None:
    """What norms queries and keys, if anything does: each head, or all of them together."""
    if not hasattr(attention, "q_norm"):
        return None
    queries, keys = attention.q_norm, attention.k_norm
    if queries.weight.shape[0] != attention.head_dim:
        return projection_norm(
            _rms_norm(make, queries), _rms_norm(make, keys), config.num_attention_heads
        )
    query_weight, epsilon = _norm_weight(make, queries)
    key_weight, _ = _norm_weight(make, keys)
    weights = [query_weight] * config.num_attention_heads + [
        key_weight
    ] * config.num_key_value_heads
    return RootMeanSquareNorm(torch.stack(weights), epsilon)


def _rotation(make: LayerFactory, body: Any, positions: Tensor, kind: str | None) -> Rotation:
    """The tables of a kind of layer, or of all."""
    like = torch.empty((1, 1), dtype=make.form.dtype, device=make.device)
    arguments = (like, positions) if kind is None else (like, positions, kind)
    cosines, sines = (table[0].to(like.dtype) for table in body.rotary_emb(*arguments))
    half = sines.shape[-1] // 2
    return Rotation(cosines.contiguous(), torch.cat((-sines[:, :half], sines[:, half:]), dim=-1))


def _opt(model: Any, make: LayerFactory) -> Transformer | None:
    """OPT: learned positions with an offset of two."""
    config, body = model.config, model.model.decoder
    if (
        not config.do_layer_norm_before
        or body.final_layer_norm is None
        or body.project_in is not None
        or not config.layer_norm_elementwise_affine
    ):
        return None
    blocks = [
        _Block(
            block.self_attn_layer_norm,
            [block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj],
            block.self_attn.out_proj,
            block.final_layer_norm,
            block.fc1,
            block.fc2,
        )
        for block in body.layers
    ]
    positions = make.tensor(body.embed_positions.weight)[body.embed_positions.offset :]
    return _classic(model, make, blocks, body.embed_tokens, positions, body.final_layer_norm)


def _gpt2(model: Any, make: LayerFactory) -> Transformer | None:
    """GPT-2: weights stored transposed, queries, keys and values joined."""
    config, body = model.config, model.transformer
    if (
        not config.scale_attn_weights
        or config.scale_attn_by_inverse_layer_idx
        or config.reorder_and_upcast_attn
        or config.add_cross_attention
    ):
        return None
    blocks = [
        _Block(b.ln_1, [b.attn.c_attn], b.attn.c_proj, b.ln_2, b.mlp.c_fc, b.mlp.c_proj)
        for b in body.h
    ]
    return _classic(model, make, blocks, body.wte, make.tensor(body.wpe.weight), body.ln_f)


class _Block(NamedTuple):
    """The modules of one layer."""

    attention_norm: Any
    inputs: Sequence[Any]
    output: Any
    norm: Any
    up: Any
    down: Any


def _classic(
    model: Any,
    make: LayerFactory,
    blocks: Sequence["_Block"],
    tokens: Any,
    positions: Tensor,
    final_norm: Any,
) -> Transformer | None:
    """Learned positions, and layer norms before each part."""
    config = model.config
    activation = _ACTIVATIONS.get(config.activation_function)
    if activation is None:
        return None
    layers = tuple(
        Layer(
            attention_norm=_layer_norm(make, block.attention_norm),
            attention_in=make.joined(*block.inputs),
            attention_out=make.joined(block.output),
            feed_forward=sandwiched(
                _layer_norm(make, block.norm),
                _feed_forward(make.joined(block.up), activation, make.joined(block.down)),
                None,
            ),
        )
        for block in blocks
    )
    embed, output = make.vocabulary(tokens, model.lm_head)
    heads = config.num_attention_heads
    weights = Weights(
        embed=embed,
        position_embedding=positions,
        layers=layers,
        final_norm=_layer_norm(make, final_norm),
        heads=heads,
        output=output,
        filled_up=not make.form.groups,
    )
    return _assemble(weights, heads, config.hidden_size // heads, config.max_position_embeddings)


def _assemble(weights: Weights, key_heads: int, head_dim: int, context_length: int) -> Transformer:
    shape = LayerShape(heads=key_heads, key_dim=head_dim, value_dim=head_dim)
    geometry = Geometry(
        layers=(shape,) * len(weights.layers),
        vocabulary=weights.output.vocabulary,
        hidden_size=weights.output.hidden_size,
        context_length=context_length,
        dtype=weights.output.dtype,
        device=weights.output.device,
    )
    return Transformer(weights, geometry)


def _present(parent: Any, joined: str, *names: str) -> list[nn.Linear]:
    """The layer that joins several, or those."""
    if hasattr(parent, joined):
        return [getattr(parent, joined)]
    return [getattr(parent, name) for name in names]


def _rms_norm(make: LayerFactory, norm: Any) -> RootMeanSquareNorm:
    return RootMeanSquareNorm(*_norm_weight(make, norm))


def _norm_weight(make: LayerFactory, norm: Any) -> tuple[Tensor, float]:
    """w and ε; Gemma stores w - 1 and multiplies in float32."""
    if type(norm).__name__.startswith("Gemma"):
        return 1.0 + make.tensor(norm.weight).float(), norm.eps
    return make.tensor(norm.weight), norm.variance_epsilon


def _feed_forward(up: Pointwise, activation: Pointwise, down: Pointwise) -> Pointwise:
    return lambda x: down(activation(up(x)))


def _layer_norm(make: LayerFactory, norm: nn.LayerNorm) -> Pointwise:
    return layer_norm(make.tensor(norm.weight), make.tensor(norm.bias), norm.eps)
