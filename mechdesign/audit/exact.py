"""See `mechdesign.exact`."""

from mechdesign.exact import exp_lower, exp_upper, log_upper

__all__ = ["exp_lower", "exp_upper", "log_upper"]
