from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from mlmf.memory.fusion import Fusion, MemoryBank
from mlmf.memory.host import HostAttention

WIDTH, HEAD_DIM, SIZES = 12, 4, (2, 3, 4)


def host(heads: int, kv_heads: int, *, bias: bool = False, scale: float = HEAD_DIM**-0.5) -> HostAttention:
    norm = nn.LayerNorm(WIDTH)
    nn.init.normal_(norm.weight, 1.0, 0.2)
    sizes = [(WIDTH, heads), (WIDTH, kv_heads), (WIDTH, kv_heads)]
    q, k, v = (nn.Linear(width, n * HEAD_DIM, bias=bias) for width, n in sizes)
    o = nn.Linear(heads * HEAD_DIM, WIDTH, bias=bias)
    return HostAttention(norm, q, k, v, o, heads, kv_heads, HEAD_DIM, nn.Identity(), nn.Identity(), scale)


def bank(mask: list[list[int]]) -> MemoryBank:
    shape = (len(mask), 2, sum(SIZES))
    parts = torch.randn(*shape, WIDTH).split(SIZES, 2)
    return MemoryBank(parts, torch.tensor(mask).bool(), torch.randn(shape[0], shape[2]), SIZES)


def columns(head: int) -> slice:
    return slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "bias", "scale"), [(4, 4, True, 0.5), (4, 2, False, 0.5), (6, 1, True, 0.13)]
)
def test_equation_8_against_a_loop(heads: int, kv_heads: int, bias: bool, scale: float) -> None:
    torch.manual_seed(0)
    fusion = Fusion(host(heads, kv_heads, bias=bias, scale=scale), beta=5.0, epsilon=2.0, gating=True).eval()
    nn.init.constant_(fusion.g, 0.7)
    memory = bank([[1, 1, 1, 0, 0, 1, 1, 1, 0], [1, 0, 0, 0, 0, 1, 1, 1, 1]])
    h = torch.randn(2, 3, WIDTH)
    with torch.no_grad():
        fused, gamma = fusion(h, fusion.project(memory, 1))
        x, slots = fusion.norm(h), fusion.norm(memory.states[:, 1])
        q, k, v = (f(s).numpy() for f, s in ((fusion.q, x), (fusion.k, slots), (fusion.v, slots)))
    borders = np.cumsum((0, *SIZES))
    for b in range(2):
        for t in range(3):
            present, similarity = [], []
            for first, last in itertools.pairwise(borders):
                rows = [j for j in range(first, last) if memory.mask[b, j]]
                present.append(bool(rows))
                if rows:  # mean over heads of the cosine with the best slot
                    best = []
                    for head in range(heads):
                        mine, shared = columns(head), columns(head // (heads // kv_heads))
                        best.append(max(cosine(q[b, t, mine], k[b, j, shared]) for j in rows))
                    similarity.append(np.mean(best))
            shares = np.zeros(3)
            shares[present] = softmax(5.0 * np.array(similarity))
            np.testing.assert_allclose(gamma[b, t].numpy(), shares, atol=1e-5)
            read = np.zeros(heads * HEAD_DIM)
            for head in range(heads):
                mine, shared = columns(head), columns(head // (heads // kv_heads))
                for i, (first, last) in enumerate(itertools.pairwise(borders)):
                    rows = [j for j in range(first, last) if memory.mask[b, j]]
                    if rows:
                        logits = k[b, rows, shared] @ q[b, t, mine] * scale + memory.bias[b, rows].numpy()
                        read[mine] += shares[i] * softmax(logits) @ v[b, rows, shared]
            out = read @ fusion.o.weight.detach().numpy().T
            out += fusion.o.bias.detach().numpy() if bias else 0
            expected = h[b, t].numpy() + np.tanh(0.7) * out
            np.testing.assert_allclose(fused[b, t].numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_closed_gate_is_the_identity_to_the_bit() -> None:
    torch.manual_seed(0)
    fusion = Fusion(host(4, 2, bias=True), 20.0, 1.0, gating=True)
    h = torch.randn(1, 4, WIDTH)
    assert fusion.g.item() == 0
    assert torch.equal(fusion(h, fusion.project(bank([[1] * 9]), 0))[0], h)


def test_a_row_without_memory_is_the_identity_however_open_the_gate() -> None:
    torch.manual_seed(0)
    fusion = Fusion(host(4, 2, bias=True), 20.0, 1.0, gating=True)
    nn.init.constant_(fusion.g, 0.7)
    h = torch.randn(2, 4, WIDTH)
    fused, gamma = fusion(h, fusion.project(bank([[0] * 9, [1] * 9]), 0))
    assert torch.equal(fused[0], h[0]) and not torch.allclose(fused[1], h[1])
    assert not gamma[0].any()
    torch.testing.assert_close(gamma[1].sum(-1), torch.ones(4))


def test_without_gating_present_layers_share_equally() -> None:
    fusion = Fusion(host(4, 4), 20.0, 1.0, gating=False)
    memory = bank([[1, 0, 0, 0, 0, 1, 0, 0, 0], [1] * 9])
    gamma = fusion(torch.randn(2, 2, WIDTH), fusion.project(memory, 0))[1]
    assert gamma[0, 0].tolist() == [0.5, 0.0, 0.5]
    torch.testing.assert_close(gamma[1, 1], torch.full((3,), 1 / 3))
    assert fusion.gate is None


def test_masked_slots_change_nothing() -> None:
    torch.manual_seed(0)
    fusion = Fusion(host(4, 2), 20.0, 1.0, gating=True).eval()
    nn.init.constant_(fusion.g, 0.7)
    memory, h = bank([[1, 0, 1, 1, 0, 1, 1, 0, 0]]), torch.randn(1, 3, WIDTH)
    states = memory.states.clone()
    states[:, :, ~memory.mask[0]] = 1000 * torch.randn(1, 2, 4, WIDTH)
    other = MemoryBank((states,), memory.mask, memory.bias, SIZES)
    one, two = (fusion(h, fusion.project(m, 0))[0] for m in (memory, other))
    torch.testing.assert_close(one, two, rtol=0, atol=1e-6)


def test_repeat_lays_rows_out_as_beams_are() -> None:
    fusion = Fusion(host(4, 2), 20.0, 1.0, gating=True).eval()
    nn.init.constant_(fusion.g, 0.7)
    projected = fusion.project(bank([[1] * 9, [1] * 6 + [0] * 3]), 0)
    h = torch.randn(2, 3, WIDTH)
    beams = fusion(h.repeat_interleave(3, 0), projected.repeat(3))[0]
    torch.testing.assert_close(beams, fusion(h, projected)[0].repeat_interleave(3, 0))
