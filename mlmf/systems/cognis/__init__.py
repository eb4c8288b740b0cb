"""Cognis: BM25 and Matryoshka vectors fused by reciprocal rank, over facts with version chains and raw messages."""
