"""Codes: what a slot holds in place of a token's states, a fifth of their size and still linear.

The states of one token at neighbouring layers say much of the same, and the read sees of them only what its keys and
values keep. A code is their projection on the directions in which keys and values vary most over the training data, so
that a blend of codes (eq. 5) is the code of the blended states; where the weights of a blend sum to less than one, the
mean state fills the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OWN = 0.1
"""Weight of a state's own dimensions beside what is read of it: training changes the read, and what it may turn to."""
RIDGE = 1e-3
"""Of the regression of what is read on the states, in variances of a state."""
LEAST_DEVIATION = 1e-2
"""Directions that a small sample hardly moved in are not blown up when other text does."""


class StateCodec(nn.Module):
    """States of a token at the ``L`` fusion layers to one code of width ``R`` and back.

    Principal components of what is read, by way of the states (reduced-rank regression): encoding is linear, codes are
    uncorrelated and have unit variance, and decoding is the least-squares estimate of the states. Until
    :meth:`calibrate` the directions are random and lose ``1 - R / (L * D)`` of the variance. Where a code is as wide as
    the states, they are standardised and nothing is lost.
    """

    mean: Tensor
    """``(L * D,)``, as the rest in float32."""
    encoder: Tensor
    """``(L * D, R)``"""
    decoder: Tensor
    """``(R, L * D)``"""

    def __init__(self, layers: int, width: int, code_dim: int, seed: int) -> None:
        """Build for ``layers`` states of ``width`` a token.

        Args:
            layers: ``L``.
            width: ``D``.
            code_dim: ``R``, at most ``L * D``; 0 keeps the states themselves, side by side and unchanged.
            seed: of the directions before and the search for them in :meth:`calibrate`.
        """
        super().__init__()
        size = layers * width
        self.layers, self.width, self.seed, self.is_identity = layers, width, seed, code_dim == 0
        self.code_width = min(code_dim, size) or size
        if self.is_identity:
            return
        generator = torch.Generator().manual_seed(seed)
        basis = torch.linalg.qr(torch.randn(size, self.code_width, generator=generator))[0]
        self.register_buffer("mean", torch.zeros(size))
        # contiguous, so that fingerprints cost nothing
        self.register_buffer("encoder", basis.contiguous())
        self.register_buffer("decoder", basis.T.clone(memory_format=torch.contiguous_format))

    @torch.no_grad()
    def calibrate(self, states: Tensor, reads: Sequence[Sequence[Tensor]]) -> None:
        """Find mean and directions from a sample; the same for the same sample.

        Args:
            states: ``(n, L, D)``.
            reads: for each layer what the fusion makes of its states, such as keys and values, ``(n, ...)`` each.
        """
        if self.is_identity:
            return
        rows = states.flatten(1).float()
        self.mean.copy_(rows.mean(0))
        rows = rows - self.mean
        std = rows.std(0).clamp_min(1e-4)
        standard = rows / std
        if self.code_width == rows.shape[1]:
            self.encoder.copy_((1 / std).diag())
            self.decoder.copy_(std.diag())
            return
        maps = self._linear_reads(standard.unflatten(1, (self.layers, self.width)), reads)
        views = [part @ one for part, one in zip(standard.split(self.width, 1), maps, strict=True)]
        directions, deviation = self._principal(torch.cat([*views, OWN * standard], 1))
        # what is seen of each layer, traced back to the layer's own dimensions
        parts = directions.split([*(view.shape[1] for view in views), rows.shape[1]])
        traced = torch.cat([one @ part for one, part in zip(maps, parts[:-1], strict=True)]) + OWN * parts[-1]
        self.encoder.copy_(traced / std[:, None] / deviation)
        codes = rows @ self.encoder
        variance = codes.square().sum(0).clamp_min(LEAST_DEVIATION**2 * len(rows))
        self.decoder.copy_(codes.T @ rows / variance[:, None])

    def _linear_reads(self, standard: Tensor, reads: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """The linear maps ``(D, P)`` closest to what is read of each layer, every part scaled to mean variance 1."""
        maps = []
        for layer, parts in enumerate(reads):
            x = standard[:, layer]
            gram = x.T @ x
            gram.diagonal().add_(RIDGE * len(x))
            found = []
            for part in parts:
                y = part.flatten(1).float()
                y = y - y.mean(0)
                found.append(torch.linalg.solve(gram, x.T @ y) / y.square().mean().sqrt().clamp_min(1e-6))
            maps.append(torch.cat(found, 1))
        return maps

    def _principal(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """The ``R`` leading directions of ``(n, P)``, as columns, and the deviation along each, ``(R,)``."""
        # more directions than are kept, since the last ones found are blurred
        sought = min(self.code_width + self.code_width // 4 + 8, views.shape[1])
        # rows of zeros change no direction, and let a sample of few tokens be decomposed
        count, missing = len(views), max(0, sought - len(views))
        views = torch.cat([views, views.new_zeros(missing, views.shape[1])])
        # randomised, since all directions of a wide model take minutes; seeded, so that it gives the same codes again
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            _, singular, directions = torch.svd_lowrank(views, q=sought, niter=4)
        deviation = singular[: self.code_width] / max(1, count - 1) ** 0.5
        return directions[:, : self.code_width], deviation.clamp_min(LEAST_DEVIATION)

    def encode(self, states: Tensor) -> Tensor:
        """``(L, S, D)`` to codes ``(S, R)``, in the dtype of the states."""
        rows = states.transpose(0, 1).flatten(1)  # (S, L * D)
        if self.is_identity:
            return rows
        # the mean comes off first: where it is many deviations, its product would round away what is to be kept
        return (rows - self.mean.to(rows.dtype)) @ self.encoder.to(rows.dtype)

    def decode_change(self, codes: Tensor) -> Tensor:
        """What codes ``(..., R)`` that are added to others add to their states, ``(L, ..., D)``."""
        if not self.is_identity:
            codes = codes @ self.decoder.to(codes.dtype)
        return codes.unflatten(-1, (self.layers, self.width)).movedim(-2, 0)

    def decode(self, codes: Tensor) -> Tensor:
        """Codes ``(..., R)`` to states ``(L, ..., D)``, in the dtype of the codes."""
        if not self.is_identity:
            codes = F.linear(codes, self.decoder.T.to(codes.dtype), self.mean.to(codes.dtype))
        return codes.unflatten(-1, (self.layers, self.width)).movedim(-2, 0)
