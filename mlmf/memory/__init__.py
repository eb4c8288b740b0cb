"""The memory of equations (4)-(10), one idea a file. Nothing here knows a conversation, a file or a training loop.

Axes used in every shape: ``B`` conversations, ``L`` fusion layers, ``S`` tokens of a session, ``T`` tokens of a query,
``N`` event nodes, ``M`` memory tokens, ``D`` width of the wrapped model, ``R`` width of a code, ``K`` width of a key.
"""
