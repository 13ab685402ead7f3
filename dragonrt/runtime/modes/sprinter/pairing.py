"""The verifier of two models that work together."""

from dragonrt.control.errors import ControlError
from dragonrt.control.verifier import Verifier


def verifier_of(draft: str, target: str, given: Verifier | None) -> Verifier:
    """`given`, if it was trained for the models with these fingerprints, else the bundled one.

    Raises ControlError where the given one does not fit, or none was given and none is bundled.
    """
    if given is None:
        return Verifier.for_pair(draft, target, "sprinter")
    if given.kind != "sprinter":
        raise ControlError(
            f"a {given.kind} verifier does not predict what sprinter needs: "
            "train one with `dragonrt train verifier --kind sprinter`"
        )
    given.check_pair(draft, target)
    return given
