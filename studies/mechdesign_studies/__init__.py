"""The studies: one file per published table or figure, each written against the public API only.

`STUDIES` is what ``mechdesign study list`` shows; a study's module is imported when it runs.
"""

from mechdesign.shell.studykit import Study

__all__ = ["STUDIES"]

STUDIES = (
    Study(
        "allocation",
        "Noise for unequal sensitivities",
        "Muthukrishnan and Kalyani, Differential privacy with higher utility by exploiting coordinate-wise disparity",
        "mechdesign_studies.noise.allocation:run",
    ),
    Study(
        "bounded-learning",
        "Private regression from declared bounds, and an attack on every estimator",
        "Vu and Slavkovic (2009); Wang, Revisiting differentially private linear regression (2018); Jagielski, Ullman and Oprea (2020)",
        "mechdesign_studies.learning.bounded:run",
        quick=True,
    ),
    Study(
        "choice",
        "The least regret of a choice by counts",
        "McKenna and Sheldon, Permute-and-flip: a new mechanism for differentially private selection, NeurIPS 2020",
        "mechdesign_studies.choice.optimum:run",
    ),
    Study(
        "clip-and-bits",
        "The clip and the bits together: the mean of n clients",
        "Privacy-Aware Randomized Quantization via Linear Programming, its first topic for future research",
        "mechdesign_studies.quantizers.clip_and_bits:run",
        quick=True,
    ),
    Study(
        "coordinate-descent",
        "Private coordinate descent on real data",
        "Muthukrishnan and Kalyani, Differential privacy with higher utility, Figures 5 and 6; Grafting Laplace and Gaussian distributions, Table III",
        "mechdesign_studies.learning.coordinate_descent:run",
        quick=True,
    ),
    Study(
        "correlated-counts",
        "Correlated noise for counts, against published factorizations",
        "Li et al. 2015; Denisov et al. 2022; Fichtenberger, Henzinger and Upadhyay 2023; McKenna et al. 2018; Dwork et al. 2010",
        "mechdesign_studies.noise.correlated_counts:run",
        quick=True,
    ),
    Study(
        "errata",
        "Errata: published numbers, statements and proofs computed again",
        "Privacy-Aware Randomized Quantization; Grafting Laplace and Gaussian distributions; Higher utility by exploiting coordinate-wise disparity; Metric differential privacy at the user level",
        "mechdesign_studies.errata:run",
    ),
    Study(
        "flipped-huber",
        "Flipped Huber noise: what exact accounting says",
        "Muthukrishnan and Kalyani, Grafting Laplace and Gaussian distributions: a new noise mechanism for differential privacy",
        "mechdesign_studies.noise.flipped_huber:run",
    ),
    Study(
        "graph",
        "Private connections between users whose interests are public",
        "Metric differential privacy at the user level via the earth mover's distance, Section 1 and Lemmas 6.1 and 6.3",
        "mechdesign_studies.user_level.graph:run",
        quick=True,
    ),
    Study(
        "layer-clipping",
        "Noise for per-layer clipping",
        "Muthukrishnan and Kalyani, Differential privacy with higher utility by exploiting coordinate-wise disparity, Table IV",
        "mechdesign_studies.learning.layer_clipping:run",
        quick=True,
    ),
    Study(
        "local-workloads",
        "The best local report for linear questions",
        "McKenna, Maity, Mazumdar and Miklau, A workload-adaptive mechanism for linear queries under local differential privacy, VLDB 2020",
        "mechdesign_studies.channels.local_workloads:run",
    ),
    Study(
        "location",
        "Daily locations of a city, private in the earth mover's distance",
        "Metric differential privacy at the user level via the earth mover's distance, the running example",
        "mechdesign_studies.user_level.location:run",
    ),
    Study(
        "many-coordinates",
        "The best noise for many coordinates: a map",
        "Families of noise under exact composition, noise drawn together, and lower bounds with their classes",
        "mechdesign_studies.noise.many_coordinates:run",
        quick=True,
    ),
    Study(
        "metric-channel",
        "The optimal metric-private channel on grids",
        "Bordenabe, Chatzikokolakis and Palamidessi, Optimal geo-indistinguishable mechanisms, CCS 2014",
        "mechdesign_studies.channels.optimal:run",
    ),
    Study(
        "optimal-noise",
        "The provably optimal noise in one dimension",
        "Selvi, Liu and Wiesemann, Differential privacy via distributionally robust optimization (2025); Geng and Viswanath (2016); Geng et al. (2020)",
        "mechdesign_studies.noise.optimal:run",
    ),
    Study(
        "optimal-quantizer",
        "The provably optimal quantizer against everything published",
        "Privacy-Aware Randomized Quantization via Linear Programming, Figure 4; Wang et al. 2019; Chaudhuri et al. 2022",
        "mechdesign_studies.quantizers.optimal:run",
    ),
    Study(
        "pca",
        "Private principal components",
        "Muthukrishnan and Kalyani, Differential privacy with higher utility by exploiting coordinate-wise disparity, Table III",
        "mechdesign_studies.learning.pca:run",
        quick=True,
    ),
    Study(
        "published-densities",
        "Cactus and least-Rényi noise at a given (ε, δ)",
        "Alghamdi, Asoodeh, Calmon, Kosut, Sankar and Wei, Cactus mechanisms (2022); Gilani, Kurri, Kosut and Sankar (2025)",
        "mechdesign_studies.noise.published_densities:run",
        quick=True,
    ),
    Study(
        "quantizer-tables",
        "Published quantizer tables, exact and audited",
        "Privacy-Aware Randomized Quantization via Linear Programming, Tables 1, 2 and Figures 2, 3",
        "mechdesign_studies.quantizers.tables:run",
    ),
    Study(
        "quantized-sgd",
        "Quantized stochastic gradients, and what they protect",
        "Privacy-Aware Randomized Quantization via Linear Programming, Figures 4c and 4d, Tables 8 and 9",
        "mechdesign_studies.learning.quantized_sgd:run",
        quick=True,
    ),
    Study(
        "text",
        "Documents under a word embedding, private in the earth mover's distance",
        "Metric differential privacy at the user level via the earth mover's distance, Section 1 and Lemmas 6.1 and 6.3",
        "mechdesign_studies.user_level.text:run",
    ),
    Study(
        "user-level-frequency",
        "Frequency estimation: metric against user-level privacy",
        "Metric differential privacy at the user level via the earth mover's distance, section 6.2",
        "mechdesign_studies.user_level.frequency:run",
    ),
    Study(
        "user-level-tables",
        "User-level metric privacy: definitions and errors, computed",
        "Metric differential privacy at the user level via the earth mover's distance, Tables 1 and 2",
        "mechdesign_studies.user_level.tables:run",
    ),
    Study(
        "vectors",
        "A vector under one budget, against the proved lower bound and everything published",
        "Isik et al. 2023; Asi, Feldman and Talwar 2022; Chen et al. 2020, 2022; Agarwal et al. 2021; Kairouz et al. 2021; Guo et al. 2023",
        "mechdesign_studies.vectors.errors:run",
        quick=True,
    ),
)
