"""Studies of randomized quantizers: OPTM, RQM, ERM, MVU and the optimum."""
