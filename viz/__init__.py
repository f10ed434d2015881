"""Pictures of traces: animated GIFs, stills, charts."""

from viz.chart import timeline
from viz.dot import dot
from viz.gif import gif, save_still
from viz.progress import with_bar

__all__ = ["dot", "gif", "save_still", "timeline", "with_bar"]
