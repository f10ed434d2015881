"""``tinyckpt torch``: check a PyTorch model against a memory budget; print code to make it fit."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tinyckpt.base.errors import BudgetError, GraphError
from tinyckpt.base.text_table import table
from tinyckpt.base.units import size_text
from tinyckpt.cli.resolve_options import number_or_text, progress_line, time_to_search, wrong_usage
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.documents.user_functions import function_of_file, importing, user_code
from tinyckpt.planner.model.budget import budget_in_bytes, split_total
from tinyckpt.planner.model.cost_models import cost_of, given
from tinyckpt.planner.portfolio.explain import explain
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.training import ledger

# Optimiser state, in values per trainable parameter; and the class of torch.optim, with options.
OPTIMIZERS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "none": (0, "", {}),
    "sgd": (0, "SGD", {}),
    "momentum": (1, "SGD", {"momentum": 0.9}),
    "adam": (2, "Adam", {}),
    "adamw": (2, "AdamW", {}),
    "adamw-fused": (2, "AdamW", {"fused": True}),
}
TO_WRITE = """\
import torch
from tinyckpt.interop import torch as tct
model = torch.compile(model, backend=tct.backend({arguments}), fullgraph=True)"""


def torch_job(options: Any) -> int:
    """Print whether a model fits a budget, its memory by kind, and the code to write."""
    if options.calibrate is not None:
        others = (options.model, options.hf, options.budget, options.device)
        if any(each is not None for each in others) or options.modules or options.advise:
            wrong_usage(options, "--calibrate measures a device, and takes nothing else")
        return calibrate_job(options)
    if (options.model is None) == (options.hf is None) or bool(options.batch) != bool(options.hf):
        wrong_usage(options, "expected FILE.py:FUNCTION, or --hf CONFIG.json and --batch BxT")
    if options.budget is None and options.device is None and not options.modules:
        wrong_usage(options, "expected --budget, --device, or --modules")
    if options.hf:
        return config_job(options)
    with importing(options.model.rpartition(":")[0]):  # a forward may import neighbours too
        model, args = model_of(options)
        if options.code and not options.advise and options.device is None:
            wrong_usage(
                options, "--code goes with --advise or --hf: it says what advice is written for"
            )
        return report(options, model, args)


def config_job(options: Any) -> int:
    """Report on the model of a configuration file."""
    # Imports make a million objects that stay; collections would search them again and again.
    is_on = gc.isenabled()
    gc.disable()
    try:
        from tinyckpt.interop.torch.from_config import model_of_config

        model, batch = model_of_config(options.hf, options.batch)
    except GraphError as error:
        wrong_usage(options, str(error))
    else:
        gc.freeze()
    finally:
        if is_on:
            gc.enable()
    try:
        status = report(options, model, [batch])
    finally:
        gc.unfreeze()
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    print(f"Weights are in {dtype}, as the file says, and model.config.use_cache is False.")
    return status


def report(options: Any, model: Any, args: Sequence[Any]) -> int:
    """Report on a model what the options ask for; by default a plan within the budget."""
    if options.modules:
        return modules_job(options, model, args)
    if options.device is not None:
        return device_job(options, model, args)
    if options.advise or options.hf:
        return advise_job(options, model, args)
    return plan_job(options, model, args)


def plan_job(options: Any, model: Any, args: Sequence[Any]) -> int:
    """Print whether a compiled model fits as it is or with a plan, and the code to write."""
    from tinyckpt.interop import torch as tct

    workspace = counts_workspace(options, model)
    graph = tct.trace(model, *args, workspace=workspace).graph
    stored = plan(graph)
    state = state_bytes(options, model)
    whole = replay(stored).peak_bytes
    eager = eager_peak(model, args, workspace)
    budget_size = budget_size_of(options, whole, graph.source_bytes + state)
    planned = stored if min(whole, whole if eager is None else eager) <= budget_size else None
    if planned is None:
        print(f"{graph.name} does not fit as it is.\n{ledgers([stored], state)}\n")
        try:
            with progress_line(graph.name) as progress:
                planned = plan(
                    graph, budget=budget_size, time_limit=time_to_search(options), progress=progress
                )
        except BudgetError as error:
            raise with_total(error, options, graph.source_bytes + state) from error
    arguments = f"{budget_size}" if not options.no_workspace else f"{budget_size}, workspace=False"
    fits_plainly = planned is stored and (eager is None or eager <= budget_size)
    columns = about_columns(eager, graph.source_bytes + state)
    print(verdict(graph.name, planned, stored, state, "" if fits_plainly else arguments, columns))
    print_left_out(options, model)
    if options.explain:
        print(f"\n{explain(planned, time_limit=time_to_search(options))}")
    if options.play:
        from tinyckpt import viz

        traces = [replay(each) for each in ([stored] if planned is stored else [stored, planned])]
        print(f"\nwritten to {viz.player(traces, options.play)}; open it in a browser")
    return 0


def advise_job(options: Any, model: Any, args: Sequence[Any]) -> int:
    """Print the modules to wrap in plain training, and the memory that results."""
    if options.play or options.explain:
        wrong_usage(
            options, "--advise and --hf are about plain training; --play and --explain show plans"
        )
    from tinyckpt.interop import torch as tct

    state = state_bytes(options, model)
    workspace = counts_workspace(options, model)
    other = state  # and, once the step is recorded, parameters, buffers and arguments

    def within(plain: int, sources: int) -> int:
        nonlocal other
        other = sources + state
        return budget_size_of(options, plain, other)

    try:
        advice = tct.advise(model, *args, budget=within, workspace=workspace)
    except BudgetError as error:
        raise with_total(error, options, other) from error
    rows = [
        ["parameters, buffers, arguments", *[size_text(advice.source_bytes)] * 2],
        ["optimizer state", *[size_text(state)] * 2],
        ["gradients, activations, workspace", *map(size_text, (advice.plain_peak, advice.peak))],
        ["total", *(size_text(peak + other) for peak in (advice.plain_peak, advice.peak))],
    ]
    fits, text = advice_texts(options, advice)
    print(fits)
    print(table(["at the peak", "now", "advised"], rows))
    print("Columns are steps of plain training; a compiled one, as without --advise, may differ.")
    print(f"\n{text}")
    print_left_out(options, model)
    return 0


def device_job(options: Any, model: Any, args: Sequence[Any]) -> int:
    """Print the modules to wrap for a CUDA device, and what training takes of it, by term."""
    if options.play or options.explain:
        wrong_usage(options, "--device is about plain training; --play and --explain show plans")
    from tinyckpt.interop import torch as tct
    from tinyckpt.interop.torch.optimizer_memory import optimizer_class

    _, name, settings = OPTIMIZERS[options.optimizer]
    optimizer = partial(optimizer_class(name), **settings) if name else None
    budget = None if options.budget is None else number_or_text(options.budget)
    advice = tct.advise(model, *args, device=options.device, budget=budget, optimizer=optimizer)
    print("\n\n".join(advice_texts(options, advice)))
    return 0


def calibrate_job(options: Any) -> int:
    """Measure the CUDA device that is here, and write the file that ``--device`` takes."""
    from tinyckpt.interop.torch.cuda_devices import calibrate

    device = calibrate(options.calibrate)
    print(
        f"{device.name}: {size_text(device.capacity)}, of which a process takes "
        f"{size_text(device.context)} beside PyTorch's allocator; cuBLAS's workspace is "
        f"{size_text(device.cublas)}\nwritten to {options.calibrate}; pass it as --device"
    )
    return 0


def modules_job(options: Any, model: Any, args: Sequence[Any]) -> int:
    """Print what each module takes in a plain step; nothing is planned."""
    if options.play or options.explain or options.advise or options.device is not None:
        wrong_usage(options, "--modules is about plain training as it is, without a plan or advice")
    from tinyckpt.interop import torch as tct

    workspace = counts_workspace(options, model)
    found = tct.memory_by_module(model, *args, workspace=workspace)
    state = state_bytes(options, model)
    print(found)
    print(
        f"\n{size_text(found.peak)} at the peak, and {size_text(found.source_bytes + state)} of "
        "parameters, buffers, arguments and optimizer state: "
        f"{size_text(found.peak + found.source_bytes + state)} total"
    )
    print_left_out(options, model)
    return 0


# The request --------------------------------------------------------------------------------------


def model_of(options: Any) -> tuple[Any, Sequence[Any]]:
    """Return the model and the arguments that a function in a file returns."""
    path, colon, name = options.model.rpartition(":")
    try:
        if not colon or not path.endswith(".py"):
            raise GraphError(
                f"{options.model}: expected path/to/file.py:function, a function that takes "
                "nothing and returns a model and its arguments"
            )
        function = function_of_file(path, name)
        with user_code(path, name):
            made = function()
        if not isinstance(made, tuple) or len(made) != 2:
            raise GraphError(
                f"{options.model} returned a {type(made).__name__}; expected a tuple of a model "
                "and its arguments"
            )
        from tinyckpt.interop.torch.validate_model import check_model

        model, args = made
        check_model(model)
    except GraphError as error:
        wrong_usage(options, str(error))
    return model, args if isinstance(args, tuple | list) else (args,)


def counts_workspace(options: Any, model: Any) -> bool:
    """Whether kernels are run for their workspace: not on the device ``meta``, which has none."""
    has_kernels = all(parameter.device.type != "meta" for parameter in model.parameters())
    return has_kernels and not options.no_workspace


def state_bytes(options: Any, model: Any) -> int:
    """Return the bytes of the optimiser's state."""
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    return OPTIMIZERS[options.optimizer][0] * int(trained)


def budget_size_of(options: Any, whole: int, sources: int) -> int:
    """Return the bytes that a total budget leaves for a step, after parameters and state."""
    value = number_or_text(options.budget)
    text = str(value)
    if isinstance(value, str):
        text, _ = split_total(value)
    if isinstance(value, float):
        text = f"{100 * value:g} %"
    elif isinstance(value, int):
        text = f"{value} bytes"
    named = "parameters, arguments and the optimizer's state"
    return budget_in_bytes(f"{text} total", whole, sources, named)


def with_total(error: BudgetError, options: Any, sources: int) -> BudgetError:
    """Restate a step's BudgetError as one about the total budget."""
    smallest = None if error.smallest is None else error.smallest + sources
    text = f"it does not fit in {options.budget}: {error}"
    if smallest is not None:
        text += f"; with parameters and the optimizer's state, {size_text(smallest)} total"
    return BudgetError(text, smallest, error.proven)


# The report ---------------------------------------------------------------------------------------


def eager_peak(model: Any, args: Sequence[Any], workspace: bool) -> int | None:
    """Return the peak of a plain step, in bytes; None of a model that ``estimate`` refuses."""
    from tinyckpt.interop import torch as tct

    with suppress(GraphError):
        return tct.estimate(model, *args, workspace=workspace).peak
    return None


def advice_texts(options: Any, advice: Any) -> tuple[str, str]:
    """Return whether a model fits as it is, and the advice with its code in the requested form."""
    code = advice.source if options.code is None else advice.code(options.code)
    changed = advice.modules or advice.uncached
    fits = f"{advice.model} fits{'' if changed else ' as it is'}."
    return fits, str(advice).replace(advice.source, code)


def verdict(
    name: str, planned: Schedule, stored: Schedule, state: int, arguments: str, columns: str
) -> str:
    """Return the report of a plan: whether it fits, memory by kind, and the code to write.

    Args:
        name, planned, stored, state: the model, its plan, store-all, and the optimiser's bytes.
        arguments: of ``backend``, in the code to write; empty if the model fits without.
        columns: a line that explains the table's columns.
    """
    if not arguments:
        return f"{name} fits as it is; nothing to write.\n{ledgers([stored], state)}\n{columns}"
    write = ["", "Write:", "", TO_WRITE.format(arguments=arguments)]
    if planned is stored:
        fits = f"{name} fits when it is compiled, with nothing recomputed."
        return "\n".join([fits, ledgers([stored], state), columns, *write])
    costs = given(planned.graph)
    times = cost_of(planned, costs) / (cost_of(stored, costs) or 1.0)
    lines = [
        f"{name} fits, with a plan, at {times:.3f} times the cost.",
        ledgers([stored, planned], state),
        columns,
        "",
        str(planned.certificate) if planned.certificate else planned.note,
        *write,
    ]
    return "\n".join(lines)


def about_columns(eager: int | None, sources: int) -> str:
    """Return a line on the columns: compiled steps, and the total of a plain step."""
    plain = "" if eager is None else f"; one of plain training takes {size_text(eager + sources)}"
    return f"Columns are compiled steps{plain}."


def print_left_out(options: Any, model: Any) -> None:
    """Print that workspace is not counted, where no kernel ran."""
    if not counts_workspace(options, model):
        why = "--no-workspace" if options.no_workspace else "The parameters are on the device meta"
        print(f"\n{why}, so no kernel ran: the workspace of kernels is not counted.")


def ledgers(schedules: Sequence[Schedule], state: int) -> str:
    """Return the table of bytes by kind at each schedule's peak, the optimiser's state included."""
    columns = []
    for schedule in schedules:
        by_kind = dict(ledger(schedule).at_peak)
        by_kind["optimizer state"] += state
        columns.append(by_kind)
    rows = [
        [what, *(size_text(column[what]) for column in columns)]
        for what in columns[0]
        if any(column[what] for column in columns)
    ]
    rows.append(["total", *(size_text(sum(column.values())) for column in columns)])
    return table(["at the peak", "now", "planned"][: len(columns) + 1], rows)
