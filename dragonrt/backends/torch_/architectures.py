"""Reading the weights of the architectures that `Transformer` computes.

Each reader takes a transformers model, whose weights may lie elsewhere (`LayerFactory`). It returns
None if the model uses an option that the hand-written forward leaves out. Such models, and all
others, run through `TransformersDecoder`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dragonrt.backends.torch_.attention import AttentionForm
from dragonrt.backends.torch_.backend import Geometry, LayerShape
from dragonrt.backends.torch_.linear import Pointwise, is_row_invariant
from dragonrt.backends.torch_.transformer import (
    Layer,
    RootMeanSquareNorm,
    Rotation,
    Transformer,
    Weights,
    gated_feed_forward,
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
    """Return the activation of x [n, width], such that a row's bits depend on that row alone.

    One number alone is rounded in another way than many together: parts must end with rows.
    """

    def activated(x: Tensor) -> Tensor:
        rows, width = x.shape
        fits = 1 if width % _AT_ONCE and x.is_contiguous() else max(1, _SERIAL // width)
        if rows <= fits:
            return activation(x)
        return torch.cat([activation(part) for part in torch.split(x, fits)])

    return activated


_TANH = _by_rows(lambda x: functional.gelu(x, approximate="tanh"))
_ACTIVATIONS: dict[str, Pointwise] = {
    "relu": functional.relu,
    "silu": _by_rows(functional.silu),
    "gelu": _by_rows(functional.gelu),
    "gelu_new": _TANH,
    "gelu_pytorch_tanh": _TANH,
}
_EVERY_LAYER_SLIDES = ("mistral", "phi3")  # if their configuration has a window


def transformer(model: Any, make: LayerFactory) -> Transformer | None:
    """Return the hand-written decoder of a transformers model, or None if there is none for it."""
    reader = _READERS.get(model.config.model_type)
    with torch.inference_mode():
        return None if reader is None else reader(model, make)


def _rotary(model: Any, make: LayerFactory) -> Transformer | None:
    """Read Llama and what came after it: rotary positions, RMS norms, gated feed-forward.

    The family's members differ in which norms a block has and where, in which layers look back
    how far, and in scales and caps.
    """
    config, body, ropes = model.config, model.model, model.config.rope_parameters
    kinds = sorted(set(config.layer_types)) if "rope_type" not in ropes else []  # Gemma 3
    activation = _activation(config)
    if (
        activation is None
        or any(
            rope["rope_type"] not in _FIXED_ROTATIONS
            for rope in [ropes[kind] for kind in kinds] or [ropes]
        )
        or getattr(config, "use_bidirectional_attention", False)
    ):
        return None
    tables = [kinds.index(kind) for kind in config.layer_types] if kinds else [0] * len(body.layers)

    def layers(make: LayerFactory) -> list[Layer]:
        blocks = zip(body.layers, tables, strict=True)
        return [_rotary_layer(make, config, *each, activation) for each in blocks]

    like = torch.empty((1, 1), dtype=make.between, device=make.device)
    positions = torch.arange(config.max_position_embeddings, device=make.device)[None]
    arguments: list[Any] = [(like, positions, kind) for kind in kinds] or [(like, positions)]
    return _assemble(
        model,
        make,
        layers,
        final_norm=_norm(make, body.norm),
        embedding_scale=getattr(body.embed_tokens, "scalar_embed_scale", 1.0),
        rotations=tuple(_rotation(body.rotary_emb(*each), like.dtype) for each in arguments),
        soft_cap=getattr(config, "final_logit_softcapping", None),
    )


def _rotary_layer(
    make: LayerFactory, config: Any, block: Any, rotation: int, activation: Pointwise
) -> Layer:
    attention, mlp = block.self_attn, block.mlp
    gate_up = make.joined(*_present(mlp, "gate_up_proj", "gate_proj", "up_proj"))
    feed_forward = gated_feed_forward(gate_up, activation, make.joined(mlp.down_proj))
    norms = {name: _norm(make, norm) for name, norm in block.named_children() if "norm" in name}
    before: Pointwise | None = norms["post_attention_layernorm"]
    attention_out, after = make.joined(attention.o_proj), norms.get("post_feedforward_layernorm")
    if after is not None:  # Gemma, and OLMo 2, which has no norm before a part
        attention_out = sandwiched(None, attention_out, before)
        before = norms.get("pre_feedforward_layernorm")
    window = getattr(attention, "sliding_window", None)
    if config.model_type in _EVERY_LAYER_SLIDES:
        window = config.sliding_window
    soft_cap = attention.attn_logit_softcapping if config.model_type == "gemma2" else None
    return Layer(
        attention_norm=norms.get("input_layernorm"),
        attention_in=make.joined(*_present(attention, "qkv_proj", "q_proj", "k_proj", "v_proj")),
        attention_out=attention_out,
        feed_forward=sandwiched(before, feed_forward, after),
        form=AttentionForm(attention.scaling, window, soft_cap),
        head_norm=_head_norm(make, config, attention),
        rotation=rotation if getattr(attention, "use_rope", True) else None,
    )


def _head_norm(make: LayerFactory, config: Any, attention: Any) -> Pointwise | None:
    """Return what norms queries and keys: each head, all of them together, or nothing."""
    if not hasattr(attention, "q_norm"):
        return None
    queries, keys, heads = attention.q_norm, attention.k_norm, config.num_attention_heads
    if queries.weight.shape[0] != attention.head_dim:
        return projection_norm(_norm(make, queries), _norm(make, keys), heads)
    query_weight, epsilon = _norm_weight(make, queries)
    key_weight, _ = _norm_weight(make, keys)
    weights = [query_weight] * heads + [key_weight] * config.num_key_value_heads
    return RootMeanSquareNorm(torch.stack(weights), epsilon)


def _rotation(tables: tuple[Tensor, Tensor], dtype: torch.dtype) -> Rotation:
    """Return the table of cosines and sines [1, context length, dims]."""
    cosines, sines = (table[0].to(dtype) for table in tables)
    half = sines.shape[-1] // 2
    return Rotation(cosines.contiguous(), torch.cat((-sines[:, :half], sines[:, half:]), dim=-1))


def _opt(model: Any, make: LayerFactory) -> Transformer | None:
    """Read OPT: learned positions with an offset of two."""
    config, body = model.config, model.model.decoder
    if (
        not config.do_layer_norm_before
        or body.final_layer_norm is None
        or body.project_in is not None
        or not config.layer_norm_elementwise_affine
    ):
        return None
    blocks = [
        (
            *(block.self_attn_layer_norm, block.final_layer_norm),
            [block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj],
            *(block.self_attn.out_proj, block.fc1, block.fc2),
        )
        for block in body.layers
    ]
    positions = make.tensor(body.embed_positions.weight)[body.embed_positions.offset :]
    return _classic(model, make, blocks, positions, body.final_layer_norm)


def _gpt2(model: Any, make: LayerFactory) -> Transformer | None:
    """Read GPT-2: weights stored transposed, queries, keys and values joined."""
    config, body = model.config, model.transformer
    if (
        not config.scale_attn_weights
        or config.scale_attn_by_inverse_layer_idx
        or config.reorder_and_upcast_attn
        or config.add_cross_attention
    ):
        return None
    blocks = [
        (each.ln_1, each.ln_2, [each.attn.c_attn], each.attn.c_proj, each.mlp.c_fc, each.mlp.c_proj)
        for each in body.h
    ]
    return _classic(model, make, blocks, make.tensor(body.wpe.weight), body.ln_f)


def _classic(
    model: Any,
    make: LayerFactory,
    blocks: Sequence[tuple[Any, ...]],
    positions: Tensor,
    final_norm: nn.LayerNorm,
) -> Transformer | None:
    """Make blocks with layer norms before each part: (norms, inputs, output, up, down)."""
    activation = _activation(model.config)
    if activation is None:
        return None

    def layers(make: LayerFactory) -> list[Layer]:
        return [
            Layer(
                attention_norm=_norm(make, attention_norm),
                attention_in=make.joined(*inputs),
                attention_out=make.joined(output),
                feed_forward=sandwiched(
                    _norm(make, norm), _plain(make.joined(up), activation, make.joined(down)), None
                ),
            )
            for attention_norm, norm, inputs, output, up, down in blocks
        ]

    return _assemble(
        model, make, layers, final_norm=_norm(make, final_norm), position_embedding=positions
    )


def _plain(up: Pointwise, activation: Pointwise, down: Pointwise) -> Pointwise:
    return lambda x: down(activation(up(x)))


def _assemble(
    model: Any, make: LayerFactory, layers: Callable[[LayerFactory], list[Layer]], **others: Any
) -> Transformer:
    config, heads = model.config, model.config.num_attention_heads
    embed, output = make.ends(model.get_input_embeddings(), model.lm_head)
    own, others_make = layers(make), make.of_prompts
    of_prompts = own if others_make is None else layers(others_make)
    filled_up = not make.form.groups
    weights = Weights(embed, own, of_prompts, heads, output, filled_up=filled_up, **others)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    shape = LayerShape(getattr(config, "num_key_value_heads", heads), head_dim, head_dim)
    sizes = len(model.lm_head.weight), config.max_position_embeddings
    geometry = Geometry((shape,) * len(own), *sizes, make.form.dtype, make.device)
    return Transformer(weights, geometry, is_row_invariant(make.form.floats, make.device))


def _activation(config: Any) -> Pointwise | None:
    names = ("hidden_activation", "hidden_act", "activation_function")
    given = (getattr(config, name, None) for name in names)
    return _ACTIVATIONS.get(next(filter(None, given)))


def _present(parent: Any, joined: str, *names: str) -> list[nn.Linear]:
    """Return the layer that joins several, or those."""
    return [getattr(parent, name) for name in ([joined] if hasattr(parent, joined) else names)]


def _norm(make: LayerFactory, norm: Any) -> Pointwise:
    if not isinstance(norm, nn.LayerNorm):
        return RootMeanSquareNorm(*_norm_weight(make, norm))
    weight, bias = (make.tensor(each).to(make.between) for each in (norm.weight, norm.bias))
    return lambda x: functional.layer_norm(x, x.shape[-1:], weight, bias, norm.eps)


def _norm_weight(make: LayerFactory, norm: Any) -> tuple[Tensor, float]:
    """Return w and ε; Gemma stores w - 1 and multiplies in float32."""
    if type(norm).__name__.startswith("Gemma"):
        return 1.0 + make.tensor(norm.weight).float(), norm.eps
    return make.tensor(norm.weight), norm.variance_epsilon


_ROTARY = (
    *("llama", "mistral", "qwen2", "qwen3", "phi3"),
    *("smollm3", "olmo2", "gemma2", "gemma3_text"),
)
_READERS: dict[str, Callable[[Any, LayerFactory], Transformer | None]] = {
    **dict.fromkeys(_ROTARY, _rotary),
    "opt": _opt,
    "gpt2": _gpt2,
}
