"""Pipeline parallelism: GPipe, 1F1B, interleaved, zero-bubble and V schedules; ZeRO replicas; MPI.

A training graph is cut into stages on several devices, and micro-batches flow through them.
``program`` defines a pipeline as a list of actions per device, ``schedules`` and ``v_schedules``
build the published schedules, ``custom_pipeline`` takes a user-defined one, ``replay`` checks and
times them without arrays. ``partition`` balances the cuts, ``stages`` cuts the graph,
``stage_schedules`` plans each stage and splits its schedule by action, ``simulate`` runs all
devices in one process, ``mpi`` one device in each. ``data_parallelism`` adds replicas and ZeRO;
``zero_memory`` accounts for the training state on every device. Nothing in the engine imports this
package.
"""

from tinyckpt.pipeline.costs import Footprint, PipelineCosts
from tinyckpt.pipeline.custom_pipeline import pipeline_of
from tinyckpt.pipeline.data_parallelism import data_parallel
from tinyckpt.pipeline.mpi import rank_in, run_pipeline_mpi
from tinyckpt.pipeline.partition import partition
from tinyckpt.pipeline.program import Action, Pipeline
from tinyckpt.pipeline.rank_supervisor import launched_rank, supervise
from tinyckpt.pipeline.replay import PipelineTrace, replay_pipeline
from tinyckpt.pipeline.run_in_process import PipelineResult, run_pipeline
from tinyckpt.pipeline.schedules import PIPELINES, gpipe, interleaved, one_f_one_b, zb_h1
from tinyckpt.pipeline.stage_schedules import PlannedStage, pipeline_costs, plan_stages
from tinyckpt.pipeline.stages import Stage, stages_of
from tinyckpt.pipeline.v_schedules import v_half, v_min
from tinyckpt.pipeline.zero_memory import StateTrace, replay_state

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
