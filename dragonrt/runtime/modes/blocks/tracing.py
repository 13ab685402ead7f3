"""The event that begins every answer with blocks, on both sides."""

from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.trace import Trace


def trace_open(trace: Trace, session: int, plan: BlockPlan, accepted: int) -> None:
    """An answer begins, with `accepted` tokens decided in a session before."""
    trace.event(
        session,
        "open",
        accepted=accepted,
        seed=plan.seed,
        temperature=plan.sampler.temperature,
        top_k=plan.sampler.top_k,
        top_p=plan.sampler.top_p,
        min_p=plan.sampler.min_p,
        **plan.settings(),
    )
