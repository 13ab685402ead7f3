"""Language models and embedding models in GGUF files, run by llama.cpp."""
