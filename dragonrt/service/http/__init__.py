"""The device as an HTTP service: the APIs of OpenAI and Ollama, a page, health and metrics."""
