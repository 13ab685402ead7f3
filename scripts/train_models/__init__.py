"""The recipe of the bundled models: generated questions, tokenizer, training, evaluation."""
