"""Run any model that vLLM serves, on many GPUs, with vLLM's own KV cache and batches."""
