"""Run language models and embedding models in GGUF files with llama.cpp."""
