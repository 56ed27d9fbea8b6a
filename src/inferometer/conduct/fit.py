"""Creates models of servers: fitted to measured runs, with the error on runs that were left out, or from data sheets
alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from inferometer import __version__
from inferometer.errors import PlanError
from inferometer.plan.reading import plan_from
from inferometer.record.columns import Records
from inferometer.record.run import Run
from inferometer.simulator.fitting.aiconfigurator import ERRORS, attention_tokens, physical_limits, physical_terms
from inferometer.simulator.fitting.calibration import (
    DEFAULT_JITTER,
    TYPICAL,
    WEIGHTS,
    Observed,
    calibrate,
    numbers_of,
    simulated_numbers,
    with_terms,
)
from inferometer.simulator.fitting.server_model import (
    LoadRange,
    ServerModel,
    limited_settings,
    limits_in_metrics,
    new_model,
    runs_of_file,
    terms_of_file,
)
from inferometer.simulator.settings import Accelerator, ModelShape, SimulatorSettings
from inferometer.vocabulary import percent_text

Notify = Callable[[str], None]

ENOUGH = 3  # runs of different load; with fewer, many parameters keep typical values
FAILED = 0.05  # share of failed requests: such a run shows the failures, not the engine
FEWEST_TOKENS = 1024  # of a KV cache large enough to be useful


def fit(
    runs: Sequence[Run],
    name: str,
    limits: Mapping[str, int],
    *,
    physics: tuple[Accelerator, ModelShape] | None = None,
    leave_one_out: bool = False,
    progress: Notify | None = None,
) -> ServerModel:
    """A model of the server that produced these runs. `limits` are those of its engine (`limits_in_log`); without them,
    those from its metrics are used."""
    observed, notes = usable(runs)
    limits = limits_in_metrics(runs[-1]) | dict(limits)
    settings = _with_shape(limited_settings(limits), physics)
    prior = physical_terms(*physics) if physics else None

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(f"fitting: {done} of {total} simulations")

    fitted = calibrate(observed, settings, prior, report)
    errors = fitted.errors
    if leave_one_out:
        errors = dict(left_out(observed, settings, prior, progress))
    unknown = [term for term, one in fitted.terms.items() if not one.identified]
    if unknown:
        notes.append(f"these runs do not determine {', '.join(unknown)}: they stay near typical values")
    if "cache_tokens" not in limits:
        notes.append("the size of the KV cache is not known: the default of the simulator is used")
    if limits.get("chunked_prefill") == 0:
        notes.append("the server does not split prompts over steps (chunked prefill is off): the model does")
    subject = runs[0].subject
    return new_model(
        name,
        "fitted",
        fitted.settings,
        engine=subject.engine_text,
        model=subject.model,
        accelerators=list(subject.accelerators),
        fitted_by=__version__,
        runs=runs_of_file(observed, errors, fitted.amplified),
        errors_are="leave-one-out" if leave_one_out else "in sample",
        range=LoadRange.of([run.records for run in observed]),
        steps=fitted.steps,
        notes=notes,
        terms=terms_of_file(fitted.terms),
    )


def left_out(
    observed: Sequence[Observed],
    settings: SimulatorSettings,
    physics: Mapping[str, float] | None = None,
    progress: Notify | None = None,
) -> Iterator[tuple[str, dict[str, float]]]:
    """For every run, the error of a model that was fitted without it."""
    if len(observed) < 2:
        raise PlanError("leave-one-out needs at least two runs, got 1")
    for number, run in enumerate(observed):
        if progress is not None:
            progress(f"leave-one-out: {number + 1} of {len(observed)}, {run.name}")
        others = [one for one in observed if one is not run]
        fitted = calibrate(others, settings, physics)
        yield run.name, errors_of(run, fitted.settings)


def errors_of(run: Observed, settings: SimulatorSettings) -> dict[str, float]:
    """Predicted relative to measured: 0.05 is 5% too high."""
    measured, predicted = numbers_of(run.records), simulated_numbers(run.plan, settings)
    return {name: predicted[name] / measured[name] - 1 for name in WEIGHTS}


def usable(runs: Sequence[Run], *, imported: bool = False) -> tuple[list[Observed], list[str]]:
    """The runs that a model can be fitted to, and notes on them; runs of several servers are refused. With `imported`
    also results of other tools that contain every read; their plan is known but not its random draws."""
    if not runs:
        raise PlanError("a model needs at least one run", "measure one: inferometer run --url http://localhost:8000")
    _refuse_mixed(runs)
    observed, notes = [], []
    for run in runs:
        records = run.records
        label = run.subject.name or run.id
        if (why := _unusable(run, records, imported)) is not None:
            notes.append(f"{label} is left out: {why}")
            continue
        assert records is not None
        observed.append(Observed(label, plan_from(run.plan, (), run.id), records))
        if run.source is not None:
            notes.append(
                f"{label} was measured by {run.source}: the prediction has its lengths and its load, but other arrivals"
            )
        steady = run.summary.window.steady
        if steady is not None and steady.status == "drifting":
            notes.append(f"{label} was not steady: what it shows is of a server that changed meanwhile")
    if not observed:
        raise PlanError(
            ["no run can be used", *notes], "use runs measured by Inferometer that still have their records"
        )
    if len(observed) < ENOUGH:
        notes.append(
            f"fitted on {len(observed)} run{'s' * (len(observed) > 1)}; at least {ENOUGH} at different loads are better"
        )
    return observed, notes


def _refuse_mixed(runs: Sequence[Run]) -> None:
    about = {(run.subject.model, run.subject.engine_text, run.subject.accelerators) for run in runs}
    if len(about) > 1:
        listed = [" · ".join(filter(None, (model, engine, *gpus))) for model, engine, gpus in sorted(about, key=str)]
        raise PlanError(["these runs are of different servers:", *listed], "fit one model for each server")


def _unusable(run: Run, records: Records | None, imported: bool) -> str | None:
    """Why a run cannot show an engine's steps."""
    if run.kind != "serving" or records is None or (run.source is not None and not imported):
        return "it has no records made by Inferometer, so no token timestamps"
    if not len(records) or not records.read_counts().any():
        return "no token was received"
    failed = 1 - float(records.outcome.mask("ok").mean())
    if failed > FAILED:
        return f"{percent_text(round(failed, 2))} of its requests failed"
    replicas = run.environment.server.replicas if run.environment.server else []
    if len(set(records.replica.counts()) - {None}) > 1 or len(run.subject.urls) > 1 or len(replicas) > 1:
        return "several servers answered, and their steps cannot be separated"
    return None


def _with_shape(settings: SimulatorSettings, physics: tuple[Accelerator, ModelShape] | None) -> SimulatorSettings:
    if physics is None or settings.pipeline is None:
        return settings
    ahead = settings.pipeline.model_copy(update={"attention_tokens": attention_tokens(physics[1])})
    return settings.model_copy(update={"pipeline": ahead})


def preset(accelerator: Accelerator, shape: ModelShape, count: int = 1) -> ServerModel:
    """A model computed from data sheets, for a server that has not been measured; `count` accelerators share the work
    without loss, unlike real links."""
    together = accelerator.times(count)
    limits = physical_limits(together, shape)
    if limits["cache_tokens"] < FEWEST_TOKENS:
        raise PlanError(
            f"{shape.name} does not fit on {count} x {accelerator.name}: no memory is left for the KV cache"
        )
    settings = _with_shape(limited_settings(limits), (together, shape))
    terms = TYPICAL | physical_terms(together, shape) | {"throttle_token": 0.0}  # already in the share of the peak
    return new_model(
        f"{count} x {accelerator.name}, {shape.name}",
        "physics",
        with_terms(settings, terms, DEFAULT_JITTER),
        engine="vLLM",
        model=shape.name,
        accelerators=[accelerator.name] * count,
        fitted_by=__version__,
        notes=["from the data sheet alone: fit a model to measured runs for numbers to act on", ERRORS],
    )
