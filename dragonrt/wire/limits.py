"""How large a message and its fields may be."""

NONCE_BYTES = 16
PROOF_BYTES = 32
MAX_NAME = 128
MAX_MODEL_NAME = 512
MAX_PROMPT = 64 * 1024
MAX_CONVERSATION = 1024 * 1024
MAX_TURNS = 64
MAX_TOKENS = 65536
MAX_STEP = 2 * MAX_TOKENS  # a side may draft beyond the last token, but not without end
MAX_TOKEN = 2**31 - 1
MAX_STOP_TOKENS = 256
MAX_DOCUMENTS = 256
MAX_MISSING = 64
MAX_CODE = 256
MAX_RUN_AHEAD = 4096
MAX_PAYLOAD = 2 * 1024 * 1024
MAX_BLOCK = 256
MAX_WANTED = 64  # entries asked for at once: a race needs one or two
MAX_RESOLUTION = 2**20
MAX_UPLOAD = 3 * 1024 * 1024
MAX_PADDING = 1024 * 1024
MAX_32 = 2**32 - 1
MAX_64 = 2**64 - 1
MAX_TIME_US = 2**63 - 1
