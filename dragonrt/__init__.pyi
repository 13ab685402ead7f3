from dragonrt.api import Device as Device
from dragonrt.api import connect as connect
from dragonrt.api import serve_cloud as serve_cloud
from dragonrt.errors import DragonError as DragonError
from dragonrt.service.answer import Answer as Answer
from dragonrt.service.answer import Piece as Piece
from dragonrt.service.answer import Source as Source
from dragonrt.service.chat import Chat as Chat
from dragonrt.service.chat import Stream as Stream

__version__: str
PUBLIC: dict[str, str]
