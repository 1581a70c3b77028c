"""Tables whose optimum doubles do not see: at large ε, at tiny ε or δ laws are private, and no bound exceeds the optimum, that of a scaled program by hand."""

import math

import pytest

import mechdesign as md

P, S, T = md.Table([0, 10], [-12, -2]), md.Table([-3, -1, 3], [-12, -3, 7, 12]), md.Table([-8, 3], [-7, -1])
LARGE = md.Problem(md.Minimize(P.worst("absolute")), [P.private(md.ApproximateDP(700, 1e-6)), P[0, 0] <= 2])
UNBIASED = [S.private(md.ApproximateDP(30, 5e-324)), S.unbiased()]
TINY = [T.private(md.ApproximateDP(1e-12, 1e-12))]


@pytest.mark.parametrize(
    ("design", "value"),
    [
        (LARGE, 12.0),
        (md.Problem(md.Minimize(S.expected("absolute")), UNBIASED), 8 / 3),
        (md.Problem(md.Minimize(T.worst("absolute")), TINY), 5.5),
        (md.MetricChannel([[0, 100], [100, 0]], 0.7), 100 / (1 + math.exp(70))),
        (md.MetricChannel(md.MetricSpace.line([0, 1, 3, 6]), 30.0, loss="squared"), math.exp(-30) / 2),
        (md.BoundedCount(4, md.ApproximateDP(60, 0.01)), 2 * 0.99 * math.exp(-60)),
    ],
)
def test_what_doubles_do_not_see_is_answered_honestly(design, value: float) -> None:
    result = design.solve()
    assert result.certificate.verify()
    assert result.lower_bound <= value * (1 + 1e-11) and value * (1 - 1e-11) <= result.value
