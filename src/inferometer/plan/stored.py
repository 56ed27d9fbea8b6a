"""`StoredPlan`: the plan of a run as it is kept, with attributes for what is read of it. It may be another version's of
ours, that of a batch, a benchmark or a startup, or the part of one that another tool's file has: what it does not have
is `None` or empty, and `checked` is the whole plan with its defaults where it is one of the present version."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from inferometer.documents.document import Document, JsonObject, JsonValue

if TYPE_CHECKING:  # brings pydantic along, which a list of runs can do without
    from inferometer.plan.load import Load
    from inferometer.plan.model import Plan


class StoredPlan(Document):
    """Read like any mapping where all of it is passed on: shown, hashed, or made into a plan again."""

    @property
    def name(self) -> str | None:
        return self.text("name")

    @property
    def about(self) -> str | None:
        return self.text("about")

    @property
    def title(self) -> str | None:
        """What it is about, or else its name."""
        return self.about or self.name

    @property
    def model(self) -> str | None:
        """Of an engine in this process; a server's is that of its target."""
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
        """Of a whole workload submitted at once."""
        return self.count("num_prompts")

    @property
    def benchmark(self) -> Document:
        """A user's own command or function."""
        return self.section("benchmark")

    @cached_property
    def checked(self) -> "Plan | None":
        """The plan with all its defaults; None where it is no plan of a load, or not of the present version."""
        from pydantic import ValidationError

        from inferometer.plan.model import Plan

        try:
            return Plan.model_validate(dict(self))
        except ValidationError:
            return None

    @cached_property
    def load(self) -> "Load | None":
        """Its load alone, also of another tool's plan; None where there is none that we know."""
        from inferometer.plan.wording import stored_load

        return stored_load(self.section("load"))

    def with_settings(self, **settings: JsonValue) -> "StoredPlan":
        return StoredPlan({**self, **settings})

    def settings(self) -> dict[str, Any]:
        """All of it, for what writes it."""
        return dict(self)


def stored(plan: JsonObject) -> StoredPlan:
    return plan if isinstance(plan, StoredPlan) else StoredPlan(plan)
