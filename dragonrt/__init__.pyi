from dragonrt.api import Answer as Answer
from dragonrt.api import Chat as Chat
from dragonrt.api import Device as Device
from dragonrt.api import Piece as Piece
from dragonrt.api import Source as Source
from dragonrt.api import Stream as Stream
from dragonrt.api import connect as connect
from dragonrt.api import serve_cloud as serve_cloud
from dragonrt.errors import DragonError as DragonError
from dragonrt.modes.registry import ModeEntry as ModeEntry
from dragonrt.modes.registry import register as register

__version__: str
PUBLIC: dict[str, str]
