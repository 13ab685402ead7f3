"""The own forward in torch: architectures, KV, number formats, GGUF files."""
