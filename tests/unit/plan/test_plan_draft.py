"""Drafts of plans have exactly the names that the model has."""

from typing import get_args

import pytest
from pydantic import BaseModel

from inferometer.plan import draft, load, model, offline, target
from inferometer.plan.experiment import Experiment, Levels, ServerUse
from inferometer.plan.server import Server
from inferometer.plan.workloads import synthetic


def names_of(annotation: object) -> set[str]:
    """Of all kinds of a union together."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return set(annotation.model_fields)
    return set().union(*map(names_of, get_args(annotation)))


SECTIONS = {
    draft.TargetDraft: target.Target,
    draft.StageDraft: load.Stage,
    draft.LoadDraft: load.Load,
    draft.StopDraft: load.Stop,
    draft.WarmupDraft: load.Warmup,
    draft.SamplingDraft: model.Sampling,
    draft.OutputDraft: model.Output,
    draft.ObserveDraft: target.Observe,
    draft.ClassDraft: model.Traffic,
    draft.PlanDraft: model.Plan,
    draft.ExperimentDraft: Experiment,
    draft.LevelsDraft: Levels,
    draft.ServerDraft: Server,
    draft.ImagesDraft: synthetic.Images,
    draft.VideosDraft: synthetic.Videos,
    draft.SoundsDraft: synthetic.Sounds,
    draft.MediaDraft: synthetic.Media,
    draft.PrefixDraft: synthetic.Prefix,
    draft.ToolsDraft: synthetic.Tools,
    draft.ServerUseDraft: ServerUse,
    draft.EngineDraft: offline.EngineCase,
    draft.LatencyDraft: offline.Latency,
    draft.ThroughputDraft: offline.Throughput,
    draft.WorkloadDraft: model.Plan.model_fields["workload"].annotation,
}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_a_draft_has_the_names_of_the_model(section: type) -> None:
    assert set(section.__annotations__) == names_of(SECTIONS[section])
