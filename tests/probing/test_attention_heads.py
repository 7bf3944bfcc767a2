"""Attended distance of hand-made attention patterns."""

import pytest
import torch

from pcfg_artifact.probing.attention_heads import attended_distance


def pattern(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def test_half_on_the_first_and_half_on_the_last_token_gives_half_the_longest_distance():
    for n in (2, 5, 9):
        attention = torch.zeros(n, n, dtype=torch.float64)
        attention[:, 0] += 0.5
        attention[:, -1] += 0.5
        assert attended_distance(attention[None, None], torch.tensor([n])).item() == pytest.approx((n - 1) / 2)


def test_uniform_attention_gives_the_mean_distance_of_two_positions():
    n = 7
    attention = torch.full((1, 1, n, n), 1 / n, dtype=torch.float64)
    assert attended_distance(attention, torch.tensor([n])).item() == pytest.approx((n**2 - 1) / (3 * n))


def test_each_head_and_sentence_counts_for_itself_and_padding_not_at_all():
    looks_at_itself = torch.eye(4, dtype=torch.float64)
    looks_ahead = pattern([0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1])
    # A sentence of two tokens, padded: rows 2 and 3 hold something, and must not be read.
    padded = pattern([0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0])
    attention = torch.stack([torch.stack([looks_at_itself, looks_ahead]), torch.stack([padded, looks_at_itself])])
    found = attended_distance(attention, torch.tensor([4, 2]))
    assert found.tolist() == [[0.0, 0.75], [1.0, 0.0]]
