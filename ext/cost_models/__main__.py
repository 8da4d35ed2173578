"""The command `python -m cost_models MODEL`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cost_models import attention, constants, fp8, gemm, measure_attention, measure_gemm, regret, times, weights
from cost_models.compiled import CompiledModel
from cost_models.errors import UsageError
from cost_models.fitted import Fitted
from cost_models.least_squares import Vector
from cost_models.times import Rows, Seconds

TIMES = Path(".perfsuite/cost_models")
EXAMPLE = """examples:
  python -m cost_models gemm                      measure on this card for five minutes, then fit
  python -m cost_models gemm --times FILE         fit to times measured before
  python -m cost_models gemm --times FILE --within 0.3   only to plans near the quickest of their product
  python -m cost_models fp8 --times FILE          fit to a survey of FP8 products; --within as for gemm
  python -m cost_models weights --times FILE      fit to a survey of weight-only products of few rows
  python -m cost_models gemm --times FILE --write also write the constants into the header

Exit code: 0 if the fitted model agrees with today's within the margin, 1 if not, 2 for bad input.
"""


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(
        prog="cost_models", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("model", choices=["gemm", "attention", "fp8", "weights"], help="whose constants")
    made.add_argument(
        "--times", type=Path, metavar="FILE", help="measured times, for fp8, weights a survey's; default: measure here"
    )
    made.add_argument("--seconds", type=float, default=300.0, metavar="N", help="to measure (%(default)s)")
    made.add_argument("--seed", type=int, default=0, metavar="N", help="of the problems to measure (%(default)s)")
    made.add_argument("--margin", type=float, default=0.05, metavar="X", help="between two models (%(default)s)")
    made.add_argument(
        "--near", type=float, default=0.0, metavar="N", help="of gemm: times that hold a constant where it is (0)"
    )
    made.add_argument(
        "--within",
        type=float,
        metavar="X",
        help="of gemm and fp8: leave out plans that take this share longer than the quickest of their product",
    )
    made.add_argument("--write", action="store_true", help="write the fitted constants into the header")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measure or read times, fit, print the table."""
    given = parser().parse_args(arguments)
    try:
        return run(given)
    except UsageError as error:
        print(f"cost_models: {error}", file=sys.stderr)
        return 2


def run(given: argparse.Namespace) -> int:
    """The exit code of a fit."""
    if given.near and (given.model != "gemm" or not given.near > 0):
        raise UsageError(f"--near is {given.near}; it must be 0 or more, and is for gemm")
    if given.within is not None and (given.model not in ("gemm", "fp8") or not given.within > 0):
        raise UsageError(f"--within is {given.within}; it must be above 0, and is for gemm and fp8")
    if not given.seconds > 0 or not given.margin > 0:
        raise UsageError(f"--seconds is {given.seconds} and --margin {given.margin}; both must be above 0")
    path = given.times
    if path is None and given.model in SURVEYS:
        raise UsageError(f"{given.model} needs --times FILE{SURVEYS[given.model]}")
    if path is None:
        measure = measure_gemm.measure if given.model == "gemm" else measure_attention.measure
        path = TIMES / f"{given.model}.jsonl"
        times.write(path, measure(given.seconds, given.seed))
        print(f"times are in {path}")
    rows, measured, plans = READERS[given.model](path)
    more = {option: getattr(given, option) for option in OPTIONS.get(given.model, ())}
    fitted, today, refitted = FITS[given.model](rows, measured, plans, given.write, **more)
    for one in fitted:
        print_table(one)
    apart = float(np.sqrt(np.mean(np.log(refitted / today) ** 2)))
    error = float(np.sqrt(np.mean(np.log(today / measured) ** 2)))
    print(f"today's constants miss the times by {error:.1%}; the fitted model differs from today's by {apart:.1%}")
    if apart > given.margin:
        print(f"that is beyond the margin of {given.margin:.1%}")
        return 1
    return 0


def fit_gemm(
    rows: Rows, measured: Seconds, plans: list[str], write: bool, near: float = 0.0, within: float | None = None
) -> tuple[list[Fitted], Seconds, Seconds]:
    """The fit, and the times of today's and of the fitted constants. Prints what the choices of both lose."""
    model = gemm.GemmModel()
    products = regret.Products.of_rows(rows, gemm.product_of)
    chosen = np.ones(len(rows), bool) if within is None else regret.near_best(products, measured, within)
    if products.keys:
        print_regrets(model, products, rows, measured, near, within)
    fitted, *_ = fit_structs(model, rows[chosen], measured[chosen], write, near)
    return fitted, model.microseconds(rows, model.start()), model.microseconds(rows, after_fit(model, fitted))


def print_regrets(
    model: gemm.GemmModel,
    products: regret.Products,
    rows: Rows,
    measured: Seconds,
    near: float,
    within: float | None,
) -> None:
    """The time that choices lose: by today's constants, and by constants that were fitted to other products."""

    def fit(rows: Rows, measured: Seconds) -> Callable[[Rows], Seconds]:
        if within is not None:
            kept = regret.near_best(regret.Products.of_rows(rows, gemm.product_of), measured, within)
            rows, measured = rows[kept], measured[kept]
        values = after_fit(model, model.fit(rows, measured, near=near))
        return lambda rows: model.microseconds(rows, values, choosing=True)

    of_today = regret.regrets(products, model.microseconds(rows, model.start(), choosing=True), measured)
    print(
        f"choices of {len(products.keys)} products lose {of_today.mean():.2%} of the time with today's constants",
        end="",
    )
    if len(products.keys) >= regret.FOLDS:
        fitted = regret.held_out(products, rows, measured, fit)
        print(f", {fitted.mean():.2%} with constants that were fitted to the others", end="")
    print()
    for name, (count, lost) in regret.by_quickest(products, of_today, measured).items():
        print(f"  {name:<16} {count:>4} products {lost:>7.2%}")


def after_fit(model: CompiledModel, fitted: list[Fitted]) -> dict[str, Vector]:
    """All constants, with the fitted ones."""
    return {**model.start(), **{one.struct: np.array(list(one.after.values())) for one in fitted}}


def fit_fp8(
    rows: Rows, measured: Seconds, plans: list[str], write: bool, within: float | None = None
) -> tuple[list[Fitted], Seconds, Seconds]:
    """The same, without choices."""
    model, chosen = fp8.Fp8Model(), fp8.near_best(rows, measured, within)
    fitted, *_ = fit_structs(model, rows[chosen], measured[chosen], write)
    return fitted, model.microseconds(rows, model.start()), model.microseconds(rows, after_fit(model, fitted))


def fit_weights(rows: Rows, measured: Seconds, plans: list[str], write: bool) -> tuple[list[Fitted], Seconds, Seconds]:
    """The same."""
    return fit_structs(weights.WeightsModel(), rows, measured, write)


def fit_structs(
    model: CompiledModel, rows: Rows, measured: Seconds, write: bool, near: float = 0.0
) -> tuple[list[Fitted], Seconds, Seconds]:
    """The same, of a model whose constants are structs of one header."""
    fitted = model.fit(rows, measured, near=near)
    after = after_fit(model, fitted)
    if write:
        for one in fitted:
            constants.write(model.header, one.struct, one.after)
    return fitted, model.microseconds(rows, model.start()), model.microseconds(rows, after)


def fit_attention(
    rows: Rows, measured: Seconds, plans: list[str], write: bool
) -> tuple[list[Fitted], Seconds, Seconds]:
    """The same. Today's constants say nothing of the unit and the launch, so those are fitted for them, too."""
    model = attention.AttentionModel()
    fitted = model.fit(rows, measured, plans)
    after = {one.struct: one.after for one in fitted}
    if write:
        attention.write(model.files, fitted)
    return fitted, model.microseconds(rows, measured, plans), model.microseconds(rows, measured, plans, after)


READERS = {
    "gemm": lambda path: times.read(path, gemm.FIELDS),
    "attention": lambda path: times.read(path, attention.FIELDS),
    "fp8": fp8.read,
    "weights": weights.read,
}
FITS = {"gemm": fit_gemm, "attention": fit_attention, "fp8": fit_fp8, "weights": fit_weights}
OPTIONS = {"gemm": ("near", "within"), "fp8": ("within",)}
"""Of a fit, besides those that all have."""
SURVEYS = {
    "fp8": "; `python -m cuda_llm_ops.survey_fp8 --output FILE` writes one",
    "weights": ", such as records/h200/survey-weights-few-rows.txt",
}


def print_table(one: Fitted) -> None:
    """One struct: every constant today and fitted."""
    print(f"{one.struct}: {one.times} times, missed by {one.error:.1%}; {one.within:.1%} of them within 10 %")
    width = max(map(len, one.before))
    print(f"  {'constant':<{width}} {'today':>12} {'fitted':>12} {'change':>8}")
    for name, before in one.before.items():
        after = one.after[name]
        change = "not seen" if name in one.unseen else f"{after / before - 1:+.1%}"
        print(f"  {name:<{width}} {before:>12.5g} {after:>12.5g} {change:>8}")


if __name__ == "__main__":
    sys.exit(main())
