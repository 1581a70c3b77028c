"""With samples as prior the range of the inputs is stated by the user, or the call is refused."""

import numpy as np
from scipy import stats

import mechdesign as md

pure, bins, names = md.PureDP(2.0), [-4, 0.2, 0.6, 4], ["RQM"]
samples = np.random.default_rng(0).normal(0.5, 0.1, 1000)
boxes = {"bins": md.Grid(delta=[1.0], inner=[0.5]), "levels": md.Grid(level=[0.67], width=[0.01])}
search, few = md.BinSearch(3, 4.0, starts=1), md.Grid(delta=[1.6], q=[0.4])
quantizer = md.OptimalQuantizer


def compared(**more):
    return md.compare(md.LocalReport(2, **more), pure, mechanisms=names, progress=False).best


asked = {
    "OPTM": lambda **more: md.OPTM(bins, pure, **more).solve(),
    "OPTMSearch": lambda **more: md.OPTMSearch(pure, **boxes, **more).solve(),
    "OptimalQuantizer": lambda **more: quantizer(bins, pure, **more).solve(),
    "BinSearch": lambda **more: quantizer(search, pure, **more).solve(),
    "RQM": lambda **more: md.RQM(4, pure, grid=few, **more).solve(),
    "MetricQuantizer": lambda **more: md.MetricQuantizer(bins, md.MetricDP(2.0), **more).solve(),
    "sweep": lambda **more: md.sweep(quantizer(bins, pure, **more), epsilon=[1.0]).results[0],
    "LocalReport": compared,
    "LocalReport of clients": lambda **more: compared(clients=100, **more),
}
for name, solve in asked.items():
    for more in ({"prior": samples}, {"prior": samples, "input_range": (-1, 1)}):
        try:
            result = solve(**more)
            print(f"{name}: error {result.value:.4g}, protects {np.round(result.mechanism.input_range, 3)}")
        except md.DesignError as error:
            print(f"{name}: refused: {error}")
law = md.OPTM([-4, -0.5, 0.5, 4], pure, stats.uniform(-1, 2)).solve()
print(f"OPTM of a law: protects {law.mechanism.input_range}")
