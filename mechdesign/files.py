"""Reading result files: the one table of the kinds of object they hold, and the module that knows each.

Loading imports a module of this table and nothing else, so that a fresh process reads every kind although the
public names are lazy. `mechdesign.evidence.serialize.serializable` marks the classes; a test compares the two.
"""

from __future__ import annotations

import os
from typing import Any

from mechdesign.errors import ResultFormatError
from mechdesign.evidence.serialize import LIMIT, loads
from mechdesign.evidence.whole_files import file_path

__all__ = ["KINDS", "load"]

KINDS: dict[str, str] = {
    "accuracy": "mechdesign.evidence.accuracy",
    "additive-noise": "mechdesign.noise.additive",
    "allocation-proof": "mechdesign.noise.allocation.question",
    "alphabet": "mechdesign.quantizers.optimal.bin_search",
    "amplification": "mechdesign.accounting.shuffling",
    "approximate-dp": "mechdesign.problem.privacy",
    "biased-proof": "mechdesign.quantizers.biased_design",
    "biased-quantizer": "mechdesign.quantizers.mechanism.biased",
    "biased-selection": "mechdesign.quantizers.biased_design",
    "bin-search": "mechdesign.quantizers.optimal.bin_search",
    "block-fill-law": "mechdesign.quantizers.mechanism.exact_law",
    "calibration": "mechdesign.noise.calibration.design",
    "calibration-bound": "mechdesign.noise.calibration.design",
    "calibration-proof": "mechdesign.noise.calibration.design",
    "cell-law-proof": "mechdesign.noise.optimal.cell_product",
    "cell-noise": "mechdesign.noise.cell_noise",
    "cell-product": "mechdesign.noise.optimal.cell_product",
    "certificate": "mechdesign.evidence.proofs",
    "channel": "mechdesign.channels.channel",
    "channel-dual": "mechdesign.channels.design",
    "channel-proof": "mechdesign.channels.design",
    "clustered-response": "mechdesign.channels.responses",
    "comparison": "mechdesign.choose.comparison",
    "correlated-gaussian": "mechdesign.noise.correlated.design",
    "correlated-gaussian-proof": "mechdesign.noise.correlated.design",
    "correlated-gaussian-noise": "mechdesign.noise.correlated.noise",
    "counts-gaussian": "mechdesign.noise.correlated.counts",
    "counts-proof": "mechdesign.noise.correlated.counts",
    "delta-interval": "mechdesign.accounting.interval",
    "discrete-emd-privacy": "mechdesign.user_level.privacy",
    "dual-pieces": "mechdesign.quantizers.common.dual_pieces",
    "emd-privacy": "mechdesign.user_level.privacy",
    "erm": "mechdesign.quantizers.erm",
    "frequency-estimate": "mechdesign.user_level.frequency",
    "frequency-fit": "mechdesign.user_level.frequency",
    "frontier": "mechdesign.quantizers.optimal.frontier",
    "grid": "mechdesign.runs.grid",
    "hadamard-response": "mechdesign.channels.responses",
    "independent-noise": "mechdesign.noise.vector_noise",
    "integer-table": "mechdesign.vectors.integer_table",
    "item-privacy": "mechdesign.user_level.privacy",
    "itemwise-release": "mechdesign.user_level.itemwise",
    "knorm": "mechdesign.noise.knorm",
    "knorm-noise": "mechdesign.noise.knorm",
    "knorm-proof": "mechdesign.noise.knorm",
    "l1-staircase": "mechdesign.noise.laws.staircase",
    "laplace-histogram": "mechdesign.user_level.frequency",
    "lattice-dual": "mechdesign.noise.optimal.lattice_dual",
    "law:discrete_gaussian": "mechdesign.noise.laws.discrete",
    "law:flipped_huber": "mechdesign.noise.laws.symmetric",
    "law:osgt": "mechdesign.noise.laws.symmetric",
    "law:staircase": "mechdesign.noise.laws.staircase",
    "law:truncated_laplace": "mechdesign.noise.laws.symmetric",
    "linear-query": "mechdesign.user_level.linear_release",
    "linear-release": "mechdesign.user_level.linear_release",
    "local-report": "mechdesign.choose.questions",
    "loss": "mechdesign.problem.losses",
    "matrix-mechanism": "mechdesign.noise.matrix.design",
    "matrix-proof": "mechdesign.noise.matrix.design",
    "mixed-noise": "mechdesign.noise.vector_noise",
    "mixed-proof": "mechdesign.noise.allocation.mixed",
    "metric-bound": "mechdesign.quantizers.metric.design",
    "metric-channel": "mechdesign.channels.design",
    "metric-dp": "mechdesign.problem.privacy",
    "metric-proof": "mechdesign.quantizers.metric.design",
    "metric-quantizer": "mechdesign.quantizers.metric.design",
    "metric-report": "mechdesign.choose.questions",
    "metric-space": "mechdesign.spaces.space",
    "mvu": "mechdesign.quantizers.mvu",
    "named-law-proof": "mechdesign.noise.optimal.several",
    "noise-allocation": "mechdesign.noise.allocation.design",
    "numeric-query": "mechdesign.choose.questions",
    "optimal-noise": "mechdesign.noise.optimal.design",
    "optimal-quantizer": "mechdesign.quantizers.optimal.design",
    "optm": "mechdesign.quantizers.optm.design",
    "optm-search": "mechdesign.quantizers.optm.search",
    "prior-clipped": "mechdesign.problem.priors",
    "prior-law": "mechdesign.problem.priors",
    "prior-moments": "mechdesign.quantizers.common.enclosures",
    "prior-samples": "mechdesign.problem.priors",
    "prior-truncated": "mechdesign.problem.priors",
    "priv-unit": "mechdesign.vectors.cap",
    "pure-dp": "mechdesign.problem.privacy",
    "quantizer-dual-bound": "mechdesign.quantizers.common.proofs",
    "quantizer-law-proof": "mechdesign.quantizers.common.proofs",
    "quantizer-value-proof": "mechdesign.quantizers.common.proofs",
    "quantizer": "mechdesign.quantizers.mechanism.quantizer",
    "queries": "mechdesign.problem.workload",
    "result": "mechdesign.evidence.results",
    "rational-table": "mechdesign.quantizers.mechanism.exact_law",
    "reduced-release": "mechdesign.user_level.reduction",
    "rqm": "mechdesign.quantizers.rqm",
    "sampled-coordinates": "mechdesign.vectors.sampled",
    "sampled-lattice-dual": "mechdesign.noise.optimal.lattice_dual",
    "sampled-signs": "mechdesign.vectors.sampled",
    "sampled-subset-bound": "mechdesign.noise.optimal.subset_bound",
    "sampling-reduction": "mechdesign.user_level.reduction",
    "selection": "mechdesign.quantizers.mechanism.selection",
    "selection-law": "mechdesign.quantizers.mechanism.exact_law",
    "sensitivity": "mechdesign.problem.sensitivity",
    "staircase-dual": "mechdesign.noise.optimal.staircase",
    "subset-bound": "mechdesign.noise.optimal.subset_bound",
    "symmetric-bound": "mechdesign.noise.optimal.subset_bound",
    "solve-report": "mechdesign.evidence.results",
    "sphere-quantizer": "mechdesign.vectors.sphere",
    "strategy-noise": "mechdesign.noise.matrix.strategy",
    "vector-design": "mechdesign.vectors.design",
    "vector-quantizer": "mechdesign.quantizers.mechanism.quantizer",
    "vector-proof": "mechdesign.vectors.design",
    "workload": "mechdesign.problem.workload",
    "zcdp": "mechdesign.problem.privacy",
}


def load(path: str | os.PathLike[str]) -> Any:
    """Read a result (or any other stored value) back from `path`.

    Raises
    ------
    ResultFormatError
        Missing, truncated, edited, or of another version; one line that says which.
    """
    name = file_path(path)
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read(LIMIT + 1)
    except FileNotFoundError:
        raise ResultFormatError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise ResultFormatError(f"{path}: cannot be read ({error})") from None
    return loads(text, source=str(path), kinds=KINDS)
