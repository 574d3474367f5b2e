"""The mixture view: a Gaussian mixture over silos with partial pooling. Arrays in, arrays out.

Silo t, concept j, row x in common coordinates::

    p(x | t) = Σ_j π_tj N(x; μ_tj, Σ)      μ_tj ~ N(μ_j + δ_t, b_j Σ)      δ_t ~ N(0, b_0 Σ)

Means, shares and the shift δ_t are a silo's own, the shape Σ is common. b_j = 1/κ_j says how far apart the silos hold
concept j: 0 is one mean for all, infinity leaves every silo alone. All that the server needs are sums over silos.
"""

from .cells import Cells
from .pooling import Pool, pooled
from .steps import Personal, Sums, e_step, personal, summed

__all__ = ["Cells", "Personal", "Pool", "Sums", "e_step", "personal", "pooled", "summed"]
