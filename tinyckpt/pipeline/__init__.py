"""Pipelines: a training graph cut into stages on several devices, and micro-batches between them.

``program`` says what a pipeline is, ``orders`` and ``vshape`` make the published ones, ``written``
takes one of your own, ``replay`` checks and times them without arrays. ``partition`` finds where to
cut a graph, ``stages`` cuts it, ``parts`` plans each stage and parts its schedule, ``running`` runs
all of them in one process, ``mpi`` one in each. ``replicas`` does so side by side, for data
parallelism and ZeRO; ``state`` counts what each of them holds. Of the engine nothing imports this
package.
"""

from tinyckpt.pipeline.costs import Footprint, PipelineCosts
from tinyckpt.pipeline.mpi import rank_in, run_pipeline_mpi
from tinyckpt.pipeline.orders import PIPELINES, gpipe, interleaved, one_f_one_b, zb_h1
from tinyckpt.pipeline.partition import partition
from tinyckpt.pipeline.parts import PlannedStage, pipeline_costs, plan_stages
from tinyckpt.pipeline.program import Action, Pipeline
from tinyckpt.pipeline.replay import PipelineTrace, replay_pipeline
from tinyckpt.pipeline.replicas import data_parallel
from tinyckpt.pipeline.simulate import PipelineResult, run_pipeline
from tinyckpt.pipeline.stages import Stage, stages_of
from tinyckpt.pipeline.state import StateTrace, replay_state
from tinyckpt.pipeline.supervising import launched_rank, supervise
from tinyckpt.pipeline.vshape import v_half, v_min
from tinyckpt.pipeline.written import pipeline_of

__all__ = [
    "PIPELINES",
    "Action",
    "Footprint",
    "Pipeline",
    "PipelineCosts",
    "PipelineResult",
    "PipelineTrace",
    "PlannedStage",
    "Stage",
    "StateTrace",
    "data_parallel",
    "gpipe",
    "interleaved",
    "launched_rank",
    "one_f_one_b",
    "partition",
    "pipeline_costs",
    "pipeline_of",
    "plan_stages",
    "rank_in",
    "replay_pipeline",
    "replay_state",
    "run_pipeline",
    "run_pipeline_mpi",
    "stages_of",
    "supervise",
    "v_half",
    "v_min",
    "zb_h1",
]
