"""Figure 1 right: the fits against what is known of them."""

import numpy as np
import pytest

from experiments.figures import MODES, gaussian_fits, modes_figure


def test_forward_kl_matches_moments_and_reverse_kl_a_mode() -> None:
    fits = gaussian_fits()
    weights, means, spreads = map(np.array, zip(*MODES, strict=True))
    mean = weights @ means
    spread = np.sqrt(weights @ (spreads**2 + means**2) - mean**2)
    assert fits["forward KL(p‖q)"] == pytest.approx((mean, spread), abs=0.02)  # the maximum likelihood of a Gaussian
    assert fits["reverse KL(q‖p)"] == pytest.approx((means[0], spreads[0]), abs=0.05)  # the heavier, narrower mode
    assert fits["JS"] == pytest.approx((means[0], spreads[0]), abs=0.05)  # between far modes JS chooses one, too


def test_the_figure_has_the_target_and_three_fits() -> None:
    (axes,) = modes_figure().axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["target", *gaussian_fits()]
