"""What is trained here: controllers of blocks, and verifiers that stand in for the target."""
