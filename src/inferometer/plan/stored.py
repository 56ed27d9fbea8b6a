"""`StoredPlan`: the stored plan of a run, with attributes for its common fields. It may come from another version, be
the plan of a batch, a benchmark or a startup, or contain only what another tool's file has. Missing fields are `None`
or empty; `checked` is the whole plan with its defaults, if it is a plan of the current version."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from inferometer.documents.document import Document, JsonObject, JsonValue

if TYPE_CHECKING:  # imports pydantic, which a list of runs does not need
    from inferometer.plan.load import Load
    from inferometer.plan.model import Plan


class StoredPlan(Document):
    """A mapping, so that it can be shown, hashed or converted to a plan again."""

    @property
    def name(self) -> str | None:
        return self.text("name")

    @property
    def about(self) -> str | None:
        return self.text("about")

    @property
    def title(self) -> str | None:
        """Its description, or else its name."""
        return self.about or self.name

    @property
    def model(self) -> str | None:
        """The model of an engine in this process, or of the target."""
        return self.text("model") or self.section("target").text("model")

    @property
    def seed(self) -> int:
        return self.count("seed") or 0

    @property
    def urls(self) -> list[str]:
        return self.section("target").texts("url")

    @property
    def api(self) -> str:
        return self.section("target").text("api") or "completions"

    @property
    def engine(self) -> str | None:
        """The engine or server that it names."""
        return self.section("engine").text("type") or self.section("server").text("type")

    @property
    def server(self) -> Document:
        return self.section("server")

    @property
    def server_args(self) -> Document:
        return self.section("server", "args")

    @property
    def tokenizer(self) -> str | None:
        return self.section("workload").text("tokenizer")

    @property
    def classes(self) -> list[Document]:
        """The traffic classes that it lists."""
        return self.sections("traffic")

    @property
    def warms_up_with_tape(self) -> bool:
        return self.section("warmup").flag("tape") is True

    @property
    def batch_sizes(self) -> list[int]:
        return [int(size) for size in self.numbers("batch_sizes")]

    @property
    def prompts(self) -> int | None:
        """The number of prompts of a workload that is submitted at once."""
        return self.count("num_prompts")

    @property
    def benchmark(self) -> Document:
        """A user's own command or function."""
        return self.section("benchmark")

    @cached_property
    def checked(self) -> "Plan | None":
        """The plan with all defaults; None if it is not a plan of a load, or not of the current version."""
        from pydantic import ValidationError

        from inferometer.plan.model import Plan

        try:
            return Plan.model_validate(dict(self))
        except ValidationError:
            return None

    @cached_property
    def load(self) -> "Load | None":
        """Its load, also for another tool's plan; None if it has no known load."""
        from inferometer.plan.wording import stored_load

        return stored_load(self.section("load"))

    def with_settings(self, **settings: JsonValue) -> "StoredPlan":
        return StoredPlan({**self, **settings})

    def settings(self) -> dict[str, Any]:
        """The whole mapping, for writing."""
        return dict(self)


def stored(plan: JsonObject) -> StoredPlan:
    return plan if isinstance(plan, StoredPlan) else StoredPlan(plan)
