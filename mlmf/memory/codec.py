"""Codes: what a slot holds in place of a token's states, a fifth of their size and still linear.

The states of one token at neighbouring layers say much of the same. A code is their projection on the directions in
which the training data varies most, so that a blend of codes (eq. 5) is the code of the blended states; where the
weights of a blend sum to less than one, the mean state fills the rest.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAST_SCALE = 0.1
"""Directions that a small sample never moved in are not blown up when other text does."""


class StateCodec(nn.Module):
    """States of a token at the ``L`` fusion layers to one code of width ``R`` and back, by principal components.

    Encoding standardises each dimension, projects on an orthonormal basis and divides by the deviation along each of
    its directions, so that codes have about unit variance. Without standardising, a few dimensions of huge variance
    would be all that is kept. Until :meth:`calibrate` the basis is random and loses ``1 - R / (L * D)`` of the variance.
    """

    mean: Tensor
    """``(L * D,)``, as the rest in float32."""
    std: Tensor
    """``(L * D,)``"""
    basis: Tensor
    """Orthonormal columns, ``(L * D, R)``."""
    scale: Tensor
    """``(R,)``"""

    def __init__(self, layers: int, width: int, code_dim: int, seed: int) -> None:
        """Build for ``layers`` states of ``width`` a token.

        Args:
            layers: ``L``.
            width: ``D``.
            code_dim: ``R``, at most ``L * D``; 0 keeps the states themselves, side by side and unchanged.
            seed: of the random basis.
        """
        super().__init__()
        size = layers * width
        self.layers, self.width, self.seed, self.is_identity = layers, width, seed, code_dim == 0
        self.code_width = min(code_dim, size) or size
        if self.is_identity:
            return
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))
        basis = torch.linalg.qr(torch.randn(size, self.code_width, generator=generator))[0]
        self.register_buffer("basis", basis.contiguous())
        self.register_buffer("scale", torch.ones(self.code_width))

    @torch.no_grad()
    def calibrate(self, samples: Tensor) -> None:
        """Take the statistics and the principal directions of sample states ``(n, L, D)``; the same for the same sample."""
        if self.is_identity:
            return
        rows = samples.flatten(1).float()
        self.mean.copy_(rows.mean(0))
        self.std.copy_(rows.std(0).clamp_min(1e-4))
        standard = (rows - self.mean) / self.std
        # more directions than are kept, since the last ones found are blurred
        sought = min(self.code_width + self.code_width // 4 + 8, standard.shape[1])
        # rows of zeros change no direction, and let a sample of few tokens be decomposed
        missing = max(0, sought - len(standard))
        standard = torch.cat([standard, standard.new_zeros(missing, standard.shape[1])])
        # randomised, since all directions of a wide model take minutes; seeded, so that it gives the same codes again
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            _, singular, directions = torch.svd_lowrank(standard, q=sought, niter=4)
        self.basis.copy_(directions[:, : self.code_width])
        deviation = singular[: self.code_width] / max(1, len(rows) - 1) ** 0.5
        self.scale.copy_(deviation.clamp_min(LEAST_SCALE))

    def encode(self, states: Tensor) -> Tensor:
        """``(L, S, D)`` to codes ``(S, R)``, in the dtype of the states."""
        rows = states.transpose(0, 1).flatten(1)  # (S, L * D)
        if self.is_identity:
            return rows
        weight = self.basis / self.std[:, None] / self.scale
        # the mean comes off first: where it is many deviations, its product would round away what is to be kept
        return (rows - self.mean.to(rows.dtype)) @ weight.to(rows.dtype)

    def decode(self, codes: Tensor) -> Tensor:
        """Codes ``(..., R)`` to states ``(L, ..., D)``, in the dtype of the codes."""
        if not self.is_identity:
            weight = self.basis * self.std[:, None] * self.scale
            codes = F.linear(codes, weight.to(codes.dtype), self.mean.to(codes.dtype))
        return codes.unflatten(-1, (self.layers, self.width)).movedim(-2, 0)
