"""Finding texts by words (BM25), by meaning (vectors), and by both (reciprocal rank)."""
