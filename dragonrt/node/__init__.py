"""One side: driver, sessions, connections, the model's thread, documents."""
