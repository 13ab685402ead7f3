"""The two sides' sessions of an answer, and what its text rests on."""
