"""Pipelines: a training graph cut into stages on several devices, and micro-batches between them.

``program`` says what a pipeline is, ``orders`` and ``vshape`` make the published ones, ``replay``
checks and times them without arrays. Nothing below the command imports this package.
"""

from tinyckpt.pipeline.costs import Footprint, PipelineCosts
from tinyckpt.pipeline.orders import PIPELINES, gpipe, interleaved, one_f_one_b, zb_h1
from tinyckpt.pipeline.program import Action, Pipeline
from tinyckpt.pipeline.replay import PipelineTrace, replay_pipeline
from tinyckpt.pipeline.vshape import v_half, v_min

__all__ = [
    "PIPELINES",
    "Action",
    "Footprint",
    "Pipeline",
    "PipelineCosts",
    "PipelineTrace",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "replay_pipeline",
    "v_half",
    "v_min",
    "zb_h1",
]
