"""What experiments on papers, benchmarks and training share. The package imports none of them."""
