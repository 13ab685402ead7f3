"""The backend of vLLM: any model that it serves, on many GPUs, with its own KV and batches."""
