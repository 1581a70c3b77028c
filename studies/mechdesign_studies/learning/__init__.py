"""Studies of learning: coordinate descent, principal components, quantized gradients, clipping by layers."""
