"""CogMem (Zhang et al., 2025, arXiv 2512.14118): long-term memory, direct-access notes, a focus of attention."""
