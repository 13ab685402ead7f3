"""The threads of a process and the batches of its model."""
