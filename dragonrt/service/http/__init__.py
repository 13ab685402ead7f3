"""The device as an HTTP service: OpenAI's API, a page, health and metrics."""
