"""The harness: ask every system the same questions, score the answers, write down what it cost."""
