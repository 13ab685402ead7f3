"""Chat on a device in a terminal, over HTTP or MCP, and compare methods of decoding."""
