"""Mode sprinter (SPEC 4; SPRINTER): a trained verifier stands in for the cloud's model."""

from dragonrt.modes.blocks.drafter import BlockDrafter
from dragonrt.modes.blocks.messages import DENSE_BLOCK
from dragonrt.modes.blocks.verifier import BlockVerifier
from dragonrt.modes.registry import UNREAD, ModeEntry, register
from dragonrt.modes.sprinter.machine import SprinterDrafting, SprinterJudging
from dragonrt.modes.sprinter.resources import check, prepare
from dragonrt.modes.sprinter.settings import SprinterSettings
from dragonrt.modes.sprinter.statistics import figures

register(
    ModeEntry(
        name="sprinter",
        settings=SprinterSettings,
        device=lambda question, settings, resources: BlockDrafter(
            SprinterDrafting(question, settings, resources), settings, resources
        ),
        cloud=lambda question, settings, resources: BlockVerifier(
            SprinterJudging(question, settings, resources), question, resources
        ),
        exact=False,
        prepare=prepare,
        check=check,
        help="a trained verifier accepts drafts: the text is approximate",
        unread=UNREAD.format("the cloud's, approximately"),
        sends=lambda settings: (DENSE_BLOCK,),
        statistics=figures,
    )
)
