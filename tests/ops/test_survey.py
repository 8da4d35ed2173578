"""The survey of shapes that nobody tuned: its draws, its record, its rules, its command."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="cuda_llm_ops needs torch")

from cuda_llm_ops.survey import __main__ as command
from cuda_llm_ops.survey import draw, models, record, rules

RUN = {"seed": "1", "official": False, "device": "NVIDIA H200", "torch": "2.11", "cuda": "13.0", "sources": "ab"}
COUNTS = {"product": 6, "attention": 3, "decode": 1}


def test_models_are_real_and_have_sources() -> None:
    all_models = models.models()
    assert len(all_models) >= 30
    assert len({one.source for one in all_models}) == len(all_models)
    assert all(one.source.count("/") == 1 and one.heads % one.kv_heads == 0 for one in all_models)
    llama = next(one for one in all_models if one.name == "Llama 3.1 8B")
    assert llama.layers()[:4] == [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    assert (128256, 4096) in llama.layers()
    assert (28672 // 8, 4096) in llama.layers(), "the part of one of eight devices"


def test_draws_depend_on_the_seed_alone_and_longer_ones_begin_alike() -> None:
    for kind in command.COUNTS:
        cases = draw.drawn(kind, "a", 200)
        assert cases == draw.drawn(kind, "a", 300)[:200] != draw.drawn(kind, "b", 200)
        assert len(set(cases)) == 200


def test_products_have_every_layout_alignment_type_and_number_of_rows() -> None:
    cases = [one for one in draw.drawn("product", "c", 1000) if isinstance(one, draw.Product)]
    assert min(one.m for one in cases) == 1
    assert max(one.m for one in cases) > 16_000
    assert 0.4 < sum(one.m % 64 == 0 for one in cases) / 1000 < 0.6
    assert {one.layout for one in cases} == {"nn", "nt", "tn", "tt"}
    assert min(Counter((one.dtype, one.out) for one in cases).values()) > 40, "both types, float32 results of both"
    assert 150 < sum(not one.aligned for one in cases) < 350
    assert sum(one.aligned and max(line % 64 for line in one.lines) > 0 for one in cases) > 150, "lines of 16 bytes"
    assert all(one.m * one.n * one.k <= draw.MOST_MULTIPLICATIONS for one in cases)


def test_a_product_is_aligned_if_its_lines_begin_at_multiples_of_16_bytes() -> None:
    def aligned(m: int, n: int, k: int, layout: str) -> bool:
        return draw.Product(m, n, k, layout, "float16", "float16").aligned

    assert aligned(257, 4096, 4096, "nn")
    assert aligned(257, 4097, 4096, "nt")
    assert not aligned(257, 4097, 4096, "nn")
    assert not aligned(257, 4096, 4097, "nt")
    assert not aligned(257, 4096, 4096, "tn")
    assert aligned(256, 4096, 4097, "tn")
    assert aligned(1, 4096, 4096, "tt"), "a single row is a line of k elements"


def test_attention_has_every_class_and_decode_large_caches_and_pages() -> None:
    cases = [one for one in draw.drawn("attention", "c", 300) if isinstance(one, draw.Attention)]
    groups = Counter(one.group for one in cases)
    assert set(groups) == {"short", "head_dim", "grouped", "77 keys", "long"}
    assert min(groups.values()) >= 10
    assert all(one.seq_kv == 77 for one in cases if one.group == "77 keys")
    assert max(one.seq_q for one in cases if one.group == "short") <= 729
    dims = {one.head_dim for one in cases if one.group == "head_dim"}
    assert len(dims) > 60
    assert min(dims) < 30
    assert max(dims) > 240
    decodes = [one for one in draw.drawn("decode", "c", 100) if isinstance(one, draw.Decode)]
    large = sum(4 * one.batch * one.kv_heads * one.length * one.head_dim >= 2 * draw.LARGE_CACHE for one in decodes)
    assert 30 < large < 70
    assert {one.page for one in decodes} == {0, *draw.PAGES}
    assert all(one.length % one.page == 0 for one in decodes if one.page)
    assert any(one.head_dim == 256 for one in decodes)


def test_a_case_is_its_line() -> None:
    for kind in command.COUNTS:
        for case in draw.drawn(kind, "d", 20):
            assert draw.case_of(json.loads(json.dumps(draw.fields(case)))) == case


def test_a_cut_survey_has_some_of_each_kind() -> None:
    kinds = Counter(kind for kind, _, _ in list(draw.interleaved("e", command.COUNTS))[:140])
    assert kinds == {"product": 100, "attention": 30, "decode": 10}


def made_up(case: draw.Case, *, plans: bool) -> dict[str, Any]:
    return {"ours": 1e-5, "library": 2e-5, "ratio": 2.0, "low": 1.9, "high": 2.1, "apart": 1e-3}


def test_a_run_that_was_cut_is_continued(tmp_path: Path) -> None:
    path, told = tmp_path / "h200/survey.jsonl", []
    of = record.begun(path, {**RUN, "counts": COUNTS})
    assert not command.survey(of, made_up, 1e-9, told.append)
    assert told[-1] == "stopped after 0 s: 1 of 10 cases; the same command continues"
    path.write_text(path.read_text() + '{"number":1,"kind":"prod')  # the machine was taken away
    of = record.begun(path, {**RUN, "counts": COUNTS})
    assert len(of.lines) == 1
    told.clear()
    assert command.survey(of, made_up, 60, told.append)
    assert len(told) == 9
    assert "10 of 10 cases, about 0 s left" in told[-1]
    whole = tmp_path / "whole.jsonl"
    command.survey(record.begun(whole, {**RUN, "counts": COUNTS}), made_up, 60, lambda _: None)
    assert path.read_text() == whole.read_text()


def test_a_seed_is_surveyed_once(tmp_path: Path) -> None:
    path = tmp_path / "survey.jsonl"

    def run(seed: str) -> None:
        command.survey(record.begun(path, {**RUN, "seed": seed, "counts": COUNTS}), made_up, 60, lambda _: None)

    run("first")
    with pytest.raises(record.RecordError, match="has the whole survey of seed first; a seed is surveyed once"):
        run("first")
    run("second")
    assert record.read(path).run["earlier"] == ["first"]
    with pytest.raises(record.RecordError, match="replaced the record of seed first"):
        run("first")
    run("third")
    assert record.read(path).run["earlier"] == ["first", "second"]


@pytest.mark.parametrize("change", [{"device": "NVIDIA H100"}, {"sources": "cd"}, {"counts": {"product": 7}}])
def test_another_run_does_not_continue_a_record(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "survey.jsonl"
    command.survey(record.begun(path, {**RUN, "counts": COUNTS}), made_up, 1e-9, lambda _: None)
    before = path.read_text()
    with pytest.raises(record.RecordError, match=f"begun by another run: {next(iter(change))} is"):
        record.begun(path, {**RUN, "counts": COUNTS, **change})
    assert path.read_text() == before


@pytest.mark.parametrize(
    "text", ["", "none\n", '{"survey": 2, "seed": "1"}\n', '{"survey": 1, "seed": "1", "counts": {}}\n{"m": 1}\n']
)
def test_a_file_that_is_no_record_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "survey.jsonl"
    path.write_text(text)
    with pytest.raises(record.RecordError, match=r"survey.jsonl is no record of a survey"):
        record.read(path)
    with pytest.raises(record.RecordError, match="cannot be read: No such file"):
        record.read(tmp_path / "none.jsonl")


def test_a_case_that_fails_is_a_line_and_counts(tmp_path: Path) -> None:
    def fails(case: draw.Case, *, plans: bool) -> dict[str, Any]:
        if case.kind == "decode":
            raise RuntimeError("no kernel takes it\nand more")
        return made_up(case, plans=plans)

    of = record.begun(tmp_path / "survey.jsonl", {**RUN, "counts": COUNTS})
    assert command.survey(of, fails, 60, lambda _: None)
    (decode,) = (line for line in of.lines if line["kind"] == "decode")
    assert decode["failed"] == "no kernel takes it"
    found = {one.rule.subject: one for one in rules.findings(of.lines)}
    assert found["decode, 256 MB and more"].found == 0.0
    assert found["every case"].found == 1.0
    assert "MISSED decode, 256 MB and more: lowest share of the read ceiling 0.000, at least 0.970" in command.report(
        of
    )


def test_plans_are_timed_for_a_number_of_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "REGRETS", 2)

    def timed(case: draw.Case, *, plans: bool) -> dict[str, Any]:
        return made_up(case, plans=plans) | ({"regret": 0.0} if plans and case.kind == "product" else {})

    of = record.begun(tmp_path / "survey.jsonl", {**RUN, "counts": COUNTS})
    command.survey(of, timed, 60, lambda _: None)
    assert sum("regret" in line for line in of.lines) == 2


def parts(folder: Path, of: int, **change: Any) -> list[Path]:
    """The records of all parts, measured."""
    places = []
    for number in range(1, of + 1):
        places.append(record.place_of(folder / "survey.jsonl", (number, of)))
        run = {**RUN, "counts": COUNTS, "part": [number, of], **(change if number == of else {})}
        command.survey(record.begun(places[-1], run), made_up, 1e9, lambda text: None)
    return places


def test_parts_of_a_survey_are_its_record(tmp_path: Path) -> None:
    whole = record.begun(tmp_path / "alone.jsonl", {**RUN, "counts": COUNTS})
    command.survey(whole, made_up, 1e9, lambda text: None)
    made = record.joined(tmp_path / "survey.jsonl", parts(tmp_path, 3))
    assert made.whole
    assert "part" not in made.run
    assert sorted(map(str, made.lines)) == sorted(map(str, whole.lines))
    assert record.read(tmp_path / "survey.jsonl").done == whole.done
    with pytest.raises(record.RecordError, match="has the whole survey of seed 1"):
        record.measured(tmp_path / "survey.jsonl", "1")


def test_a_cut_part_is_continued_from_the_record(tmp_path: Path) -> None:
    place = tmp_path / "survey.jsonl"
    one, two = parts(tmp_path, 2)
    two.write_text("".join(two.read_text().splitlines(keepends=True)[:3]))
    record.joined(place, [one, two])
    done = record.measured(place, "1")
    assert len(done) == 5 + 2
    more = record.begun(two.with_name("rest.2-of-2.jsonl"), {**RUN, "counts": COUNTS, "part": [2, 2]})
    assert command.survey(more, made_up, 1e9, lambda text: None, done)
    assert len(more.lines) == 3
    assert record.joined(place, [one, more.path]).whole, "a part may be joined once more"


def test_parts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "survey.jsonl"
    with pytest.raises(record.RecordError, match="has no parts beside it"):
        record.joined(place, [])
    one, two = parts(tmp_path, 2, sources="cd")
    with pytest.raises(record.RecordError, match=r"another run than .*sources is 'cd' and was 'ab'"):
        record.joined(place, [one, two])
    assert not place.exists()
    slower = one.with_name("slower.jsonl")
    slower.write_text(re.sub(r'"ratio":[\d.]+', '"ratio":0.123', one.read_text()))
    with pytest.raises(record.RecordError, match="with other times than another part or"):
        record.joined(place, [one, slower])


def test_plans_are_timed_for_as_many_products_in_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(command, "REGRETS", 4)
    run = {**RUN, "counts": COUNTS, "part": [2, 2]}

    def measure(case: draw.Case, *, plans: bool) -> dict[str, Any]:
        asked.append(plans)
        return {**made_up(case, plans=plans), **({"regret": 0.0} if plans else {})}

    command.survey(record.begun(tmp_path / "a.jsonl", run), measure, 1e9, lambda text: None)
    assert asked.count(True) == 2


def product(ratio: float, m: int = 100, layout: str = "nt", n: int = 4096, **more: float) -> record.Line:
    case = draw.Product(m, n, 4096, layout, "float16", "float16")
    return {"number": 0, **draw.fields(case), "ratio": ratio, "low": ratio, "high": ratio, "apart": 0.0, **more}


def attention(low: float, high: float, **more: float) -> record.Line:
    case = draw.Attention("short", 1, 8, 8, 128, 128, 63, False, "float16")
    return {"number": 0, **draw.fields(case), "ratio": (low + high) / 2, "low": low, "high": high, "apart": 0.0, **more}


def decode(share: float, bytes_: int) -> record.Line:
    case = draw.Decode(1, 8, 8, 128, 64, 0, False, "float16")
    return {
        "number": 0,
        **draw.fields(case),
        "ratio": share,
        "low": share,
        "high": share,
        "apart": 0.0,
        "bytes": bytes_,
    }


def found(lines: list[record.Line], subject: str, figure: str) -> rules.Finding:
    (one,) = (
        one for one in rules.findings(lines) if one.rule.subject.startswith(subject) and figure in one.rule.figure
    )
    return one


def test_rules_of_products() -> None:
    lines = [product(1.0)] * 94 + [product(0.95)] * 6
    assert found(lines, "products, aligned", "geometric").met is False
    assert found(lines, "products, aligned", "5th").found == 0.95
    assert found([product(1.0)] * 95 + [product(0.93)] * 5, "products, aligned", "5th").found == 0.93
    assert found([product(1.0)] * 96 + [product(0.93)] * 4, "products, aligned", "5th").met
    assert found([product(1.2)] * 99 + [product(0.91)], "products, aligned", "lowest").met is False
    assert found(lines, "products, unaligned", "5th").met is None
    assert found([product(0.99, n=4097, layout="nn")], "products, unaligned", "5th").met is False
    layouts = [product(1.05), product(1.0, layout="nn"), product(0.5, m=63, layout="tt")]
    assert found(layouts, "products, aligned, 64", "layout").found == pytest.approx(1.05)
    regrets = [product(1.0, regret=0.0), product(1.0, regret=0.03), product(1.0)]
    assert found(regrets, "products with", "wrong plan").found == 0.015


def test_rules_of_attention_and_decode() -> None:
    lines = [attention(0.99, 1.01), attention(0.9, 0.999), attention(1.1, 1.2, of_aligned=1.3)]
    assert found(lines, "attention", "intervals").found == 1.0
    assert found(lines, "attention, head_dim", "longest").met is False
    assert found(lines[:1], "attention", "intervals").met is True
    assert found([decode(0.5, 1 << 20), decode(0.98, 1 << 28)], "decode", "share").met is True
    assert found([decode(0.96, 1 << 28)], "decode", "share").met is False
    wrong = [attention(1.0, 1.0) | {"apart": apart} for apart in (0.5, float("nan"), 1e-3)]
    assert found(wrong, "every case", "results").found == 2.0


def test_the_seed_is_the_last_commit_of_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        named = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        line = ["git", "-C", str(tmp_path), *named, *words]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()

    project = tmp_path / "ext"
    (project / "csrc").mkdir(parents=True)
    git("init", "-q")
    with pytest.raises(record.RecordError, match=r"git said: .*does not have any commits yet"):
        command.official_seed(project)
    for name in ("csrc/a.cu", "b.py"):
        (project / name).write_text("1")
        git("add", ".")
        git("commit", "-q", "-m", name)
    seed = git("rev-parse", "HEAD~1")
    assert command.official_seed(project) == seed
    monkeypatch.setenv(command.WITHOUT_GIT, "mine")
    assert command.official_seed(project) == seed, "with git's folder nobody chooses it"
    (project / "csrc/a.cu").write_text("2")
    with pytest.raises(record.RecordError, match=r"kernels differ from their commit, 'M ext/csrc/a.cu'"):
        command.official_seed(project)
    assert command.official_seed(tmp_path / "ext/csrc") == "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one of the arguments --official --seed --report is required"),
        (["--seed", "1"], "--seed needs --output FILE"),
        (["--official", "--output", "a"], "--official has its own record"),
        (["--official", "--decode", "1"], "--official has its own record and its own numbers of cases"),
        (["--seed", "1", "--output", "a", "--product", "many"], "'many' must be a whole number from 0 to 10000"),
        (["--official", "--seconds", "0"], "--seconds is 0.0; it must be above 0"),
        (["--seed", "1", "--output", "a", "--part", "1/2"], "--part and --join are for --official"),
        (["--official", "--part", "3/2"], "'3/2' must be K/N, the K-th of N parts"),
        (["--official", "--part", "1/2", "--join"], "--join takes all parts"),
        (["--official", "--join", "--records", "none"], "none has parts of 0 cards; it must be one"),
        (["--report", "none.jsonl"], "none.jsonl cannot be read: No such file or directory"),
    ],
)
def test_a_command_line_that_cannot_be_is_explained(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = command.main(arguments)
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    assert said in capsys.readouterr().err


def test_the_command_joins_parts_and_says_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h200").mkdir()
    _, two = parts(tmp_path / "h200", 2)
    two.write_text("".join(two.read_text().splitlines(keepends=True)[:3]))
    assert command.main(["--official", "--join", "--records", str(tmp_path)]) == 3
    assert "seed 1, NVIDIA H200, 7 of 10 cases" in capsys.readouterr().out


def test_it_needs_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert command.main(["--seed", "1", "--output", str(tmp_path / "a")]) == 2
    assert "there is none" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
