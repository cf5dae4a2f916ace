"""The planner's fields as they are being edited, and the answer to what stands in them. Pure state."""

from dataclasses import dataclass, field

from infer_engine.planner import ConfigShape, Gpu, PlanError, gpu_named

from infer_console.actions.params import ParamError
from infer_console.planning.answer import Answer, answer
from infer_console.planning.fields import CONFIG, FROM_FILE, GPU, MODEL, OTHER_GPU, PARAMS
from infer_console.planning.question import ask
from infer_console.view.form import Field

_DIGITS = "0123456789."


def _fields() -> list[Field]:
    return [Field(param, text=param.default if isinstance(param.default, str) else "") for param in PARAMS]


@dataclass(slots=True)
class PlannerForm:
    fields: list[Field] = field(default_factory=_fields)
    focus: int = 0
    #: Rows of the results that are scrolled past.
    scrolled: int = 0
    answer: Answer | None = None
    #: Why there is no answer to what stands there; the one before is then still shown.
    error: str = ""
    #: The path whose model is known, the model, and why it is not known; and whether it is being read.
    path: str = ""
    config: ConfigShape | None = None
    config_error: str = ""
    reading: bool = False
    #: Names of the fields that the operator changed.
    edited: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.work_out()

    @property
    def focused(self) -> Field:
        return self.fields[self.focus]

    @property
    def takes_text(self) -> bool:
        return self.focused.param.kind == "text"

    def field(self, name: str) -> Field:
        return next(each for each in self.fields if each.param.name == name)

    @property
    def wanted_path(self) -> str:
        """Of the file that is to be read; empty for none."""
        path = self.field(CONFIG).text.strip()
        return path if self.field(MODEL).text == FROM_FILE else ""

    def data_sheet(self) -> Gpu | None:
        """Of the GPU that is chosen; None for one that is known by its figures alone."""
        name = self.field(GPU).text
        return gpu_named(name) if name != OTHER_GPU else None

    def move(self, by: int) -> None:
        self.focus = (self.focus + by) % len(self.fields)
        self.focused.fresh = True

    def step(self, by: int) -> None:
        """← and →: the choice or the round value before or after."""
        edited = self.focused
        sheet = self.data_sheet()
        if not edited.text and sheet is not None and edited.param.kind == "number":
            edited.text = _of_data_sheet(edited.param.name, sheet)
        edited.step(by)
        self.edited.add(edited.param.name)
        self.work_out()

    def type(self, character: str) -> bool:
        """True where the field under the cursor took the character. What is typed as a path is what is
        meant."""
        edited = self.focused
        if edited.param.kind != "text" and character not in _DIGITS:
            return False
        if edited.param.kind == "text":
            edited.fresh = False
            self.field(MODEL).text = FROM_FILE
        if not edited.type(character):
            return False
        self.edited.add(edited.param.name)
        self.work_out()
        return True

    def erase(self) -> None:
        self.focused.erase()
        self.edited.add(self.focused.param.name)
        self.work_out()

    def read(self, path: str, outcome: ConfigShape | PlanError) -> None:
        """The file was read, or could not be."""
        self.path, self.reading = path, False
        self.config = outcome if isinstance(outcome, ConfigShape) else None
        self.config_error = str(outcome) if isinstance(outcome, PlanError) else ""
        self.work_out()

    def work_out(self) -> None:
        """The answer to what stands in the fields, or why there is none."""
        self.error = ""
        path = self.wanted_path
        self.reading = bool(path) and path != self.path
        if self.reading:
            return
        if path and self.config_error:
            self.error = self.config_error
            return
        try:
            given = {each.param.name: each.given() for each in self.fields}
            self.answer = answer(ask(given, self.config if path else None))
        except (ParamError, PlanError) as error:
            self.error = str(error)


def _of_data_sheet(name: str, gpu: Gpu) -> str:
    match name:
        case "memory_gb":
            return f"{gpu.memory_bytes / 1e9:g}"
        case "bandwidth_tb_per_s":
            return f"{gpu.bandwidth_bytes_per_s / 1e12:g}"
        case "tflops":
            return f"{gpu.flops_per_s / 1e12:g}"
        case _:
            return ""


def shown_when_empty(form: PlannerForm, name: str) -> str:
    """What an empty field stands for."""
    sheet = form.data_sheet()
    return _of_data_sheet(name, sheet) if sheet is not None else ""
