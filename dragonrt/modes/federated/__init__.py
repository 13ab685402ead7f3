"""Mode federated (SPEC 3; SPECFED): a coordinator drafts, several workers verify together."""

from dragonrt.modes.blocks.messages import BLOCK
from dragonrt.modes.blocks.verifier import BlockVerifier
from dragonrt.modes.federated.machine import Coordinator
from dragonrt.modes.federated.resources import prepare
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.federated.statistics import figures
from dragonrt.modes.federated.uploads import FederatedJudging
from dragonrt.modes.registry import UNREAD, ModeEntry, Traits, register


def _traits(settings: FederatedSettings) -> Traits:
    weighs = "" if settings.weights == "fixed" else f"--weights {settings.weights}"
    return Traits(verifies=True, needs_all=settings.require_all, weighs=weighs)


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
        traits=_traits,
        prepare=prepare,
        help="this side drafts blocks, several workers verify them together",
        unread=UNREAD.format("the workers'"),
        sends=lambda settings: (BLOCK,),
        statistics=figures,
    )
)
