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

_KINDS_OF = {
    "accounting.interval": "delta-interval",
    "accounting.shuffling": "amplification",
    "channels.bounded": "bounded-count",
    "channels.channel": "channel",
    "channels.design": "metric-channel",
    "channels.linear_design": "local-workload",
    "channels.linear_proofs": "histogram-bound linear-bound linear-proof",
    "channels.linear_report": "linear-report",
    "channels.responses": "clustered-response hadamard-response",
    "channels.subset_report": "subset-report",
    "choose.comparison": "comparison",
    "choose.questions": "category-report histogram-of-users local-report metric-report numeric-query",
    "evidence.accuracy": "accuracy",
    "evidence.attack": "trade-off",
    "evidence.proofs": "certificate",
    "evidence.results": "result solve-report",
    "evidence.rows": "rows-bound",
    "model.covariance": "covariance-privacy",
    "model.lattice": "shift-privacy",
    "model.scales": "scales-privacy",
    "model.sweep": "frontier",
    "model.table_problem": "table-problem table-proof",
    "model.table": "table-mechanism table-privacy",
    "noise.additive": "additive-noise",
    "noise.allocation.design": "noise-allocation",
    "noise.allocation.mixed": "mixed-proof",
    "noise.allocation.proofs": "allocation-proof",
    "noise.allocation.scales_problem": "scales-problem",
    "noise.calibration.design": "calibration calibration-bound calibration-proof",
    "noise.cell_noise": "cell-noise integer-noise",
    "noise.correlated.bound": "covariance-bound",
    "noise.correlated.changes": "count-changes participation pattern-changes",
    "noise.correlated.design": "correlated-gaussian",
    "noise.correlated.noise": "correlated-gaussian-noise",
    "noise.correlated.problem": "covariance-problem",
    "noise.correlated.proof": "covariance-proof saddle-bound",
    "noise.correlated.strategy": "strategy-noise",
    "noise.knorm": "knorm knorm-proof",
    "noise.knorm_noise": "knorm-noise",
    "noise.laws.discrete": "law:discrete_gaussian",
    "noise.laws.staircase": "law:staircase",
    "noise.laws.symmetric": "law:flipped_huber law:osgt law:truncated_laplace",
    "noise.optimal.cell_product": "cell-law-proof cell-product",
    "noise.optimal.design": "optimal-noise",
    "noise.optimal.lattice_problem": "lattice-problem",
    "noise.optimal.lattice_dual": "lattice-dual sampled-lattice-dual",
    "noise.optimal.several": "named-law-proof sampled-subset-bound subset-bound symmetric-bound",
    "noise.optimal.staircase": "staircase-dual",
    "noise.vector_noise": "independent-noise mixed-noise",
    "plan.design": "plan plan-bound plan-proof",
    "plan.mechanism": "planned-release",
    "plan.tasks": "count-task histogram-task mean-task sum-task workload-task",
    "problem.losses": "loss",
    "problem.priors": "prior-clipped prior-law prior-samples prior-truncated",
    "problem.privacy": "approximate-dp gaussian-dp membership-advantage metric-dp pure-dp zcdp",
    "problem.sensitivity": "sensitivity",
    "problem.workload": "queries workload",
    "quantizers.biased_design": "biased-proof biased-selection",
    "quantizers.common.dual_pieces": "dual-pieces",
    "quantizers.common.enclosures": "prior-moments",
    "quantizers.common.proofs": "quantizer-dual-bound quantizer-law-proof quantizer-value-proof",
    "quantizers.erm": "erm",
    "quantizers.mechanism.biased": "biased-quantizer",
    "quantizers.mechanism.exact_law": "block-fill-law rational-table selection-law",
    "quantizers.mechanism.quantizer": "quantizer vector-quantizer",
    "quantizers.mechanism.selection": "selection",
    "quantizers.metric.design": "metric-bound metric-proof metric-quantizer metric-rows",
    "quantizers.mvu": "mvu",
    "quantizers.optimal.bin_search": "alphabet bin-search",
    "quantizers.optimal.design": "optimal-quantizer",
    "quantizers.optm.design": "optm",
    "quantizers.optm.problem": "selection-problem selection-proof",
    "quantizers.optm.search": "optm-search",
    "quantizers.rqm": "rqm",
    "runs.grid": "grid",
    "spaces.space": "metric-space",
    "user_level.frequency": "frequency-estimate frequency-fit laplace-histogram",
    "user_level.histogram": "tree-histogram user-histogram user-histogram-proof",
    "user_level.itemwise": "itemwise-release",
    "user_level.linear_release": "linear-query linear-release",
    "user_level.privacy": "discrete-emd-privacy emd-privacy item-privacy",
    "user_level.reduction": "reduced-release sampling-reduction",
    "vectors.cap": "priv-unit",
    "vectors.design": "vector-design vector-proof",
    "vectors.directions": "random-directions",
    "vectors.export": "integer-table",
    "vectors.sampled": "sampled-coordinates sampled-signs",
    "vectors.sphere": "sphere-quantizer",
}
KINDS = {kind: f"mechdesign.{module}" for module, kinds in _KINDS_OF.items() for kind in kinds.split()}
"""The module that knows each kind."""


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
