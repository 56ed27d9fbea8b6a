"""The shapes of histories in papers on change points."""

import numpy as np

from inferometer.measure.quantiles import Floats

POINTS, AT, NOISE = 100, 60, 2.0


def shaped(draw: np.random.Generator, shape: str) -> Floats:
    time = np.arange(POINTS)
    level = {
        "step up": 100 + 10.0 * (time >= AT),
        "step down": 100 - 10.0 * (time >= AT),
        "small step": 100 + 5.0 * (time >= AT),
        "spike": 100 + 20.0 * (time == AT),
        "drift": 100 + 0.1 * time,
        "noise": 100 + 0.0 * time,
    }[shape]
    return level + draw.normal(0, NOISE, POINTS)
