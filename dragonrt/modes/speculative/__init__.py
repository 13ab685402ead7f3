"""Mode speculative (SPEC 2; QSV, SQS): the device drafts blocks, the cloud verifies them."""

from dragonrt.distributions import codec
from dragonrt.modes.blocks.drafter import BlockDrafter
from dragonrt.modes.blocks.messages import BLOCK, DENSE_BLOCK
from dragonrt.modes.blocks.verifier import BlockVerifier
from dragonrt.modes.registry import UNREAD, ModeEntry, register
from dragonrt.modes.speculative.machine import (
    LookupDrafting,
    SpeculativeDrafting,
    SpeculativeJudging,
)
from dragonrt.modes.speculative.resources import carry, check, prepare
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.speculative.statistics import figures

_DRAFTINGS = {"model": SpeculativeDrafting, "lookup": LookupDrafting}

register(
    ModeEntry(
        name="speculative",
        settings=SpeculativeSettings,
        device=lambda question, settings, resources: BlockDrafter(
            _DRAFTINGS[settings.draft](question, settings, resources), settings, resources
        ),
        cloud=lambda question, settings, resources: BlockVerifier(
            SpeculativeJudging(question, settings, resources), question, resources
        ),
        exact=True,
        prepare=prepare,
        check=check,
        carry=carry,
        help="this side drafts blocks, the cloud's model verifies them",
        unread=UNREAD.format("the cloud's"),
        sends=lambda settings: (
            DENSE_BLOCK if codec(settings.codec, 2).sends_distributions else BLOCK,
        ),
        statistics=figures,
    )
)
