"""Distributed RAG (SPEC section 1): the asking side's and the answering side's coroutine.

`Asking` runs on the device and `Answering` on the cloud; between them both sides run the same
`Generation`. Neither a document nor its embedding ever leaves its side; the cloud names its
sources, which are public, the device names none.
"""

from dragonrt.runtime.modes.dragon.answering import Answering
from dragonrt.runtime.modes.dragon.asking import Answer, Asking, OnLoss, beginning
from dragonrt.runtime.modes.dragon.session import open_message

__all__ = ["Answer", "Answering", "Asking", "OnLoss", "beginning", "open_message"]
