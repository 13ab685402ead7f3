"""Language models and the adapter."""
