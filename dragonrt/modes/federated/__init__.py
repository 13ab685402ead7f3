"""Mode federated (SPEC 3; SPECFED): a coordinator drafts, several workers verify together."""

from dragonrt.modes.blocks.messages import BLOCK
from dragonrt.modes.blocks.verifier import BlockVerifier
from dragonrt.modes.federated.machine import Coordinator
from dragonrt.modes.federated.resources import prepare
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.federated.statistics import figures
from dragonrt.modes.federated.uploads import FederatedJudging
from dragonrt.modes.registry import UNREAD, ModeEntry, register

register(
    ModeEntry(
        name="federated",
        settings=FederatedSettings,
        device=Coordinator,
        cloud=lambda question, settings, resources: BlockVerifier(
            FederatedJudging(question, settings, resources), question, resources
        ),
        exact=True,
        several=True,
        prepare=prepare,
        help="this side drafts blocks, several workers verify them together",
        unread=UNREAD.format("the workers'"),
        sends=lambda settings: (BLOCK,),
        statistics=figures,
    )
)
