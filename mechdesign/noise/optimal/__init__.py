"""The least noise any mechanism can add in one dimension, with the proof.

The design (`design`) states the lattice program (`program`) with exact costs (`costs`); the search (`refine`)
over lattices (`lattice`) grows it by cuts, repairs the law in exact arithmetic (`repair`) and bounds every noise by weak duality
(`lower_bound`); `certificate` and `result` carry what is proved. After Geng and Viswanath (2016) and Selvi, Liu and
Wiesemann (2025); the lattice bounds are new. At large ε laws (`ladders`, `unimodal`) and bounds (`spread`, `spline`) live on
cells of widths from the first step of a staircase to a fraction of the sensitivity (`steps`); near δ = 1 one problem answers for all δ (`spiked`). Imports `accounting`, `problem`, `solvers`, `evidence`, and of its own wing
the law `noise.cell_noise`.
"""
