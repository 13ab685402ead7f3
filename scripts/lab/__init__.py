"""What figures, benchmarks and training share. It imports none of them."""
