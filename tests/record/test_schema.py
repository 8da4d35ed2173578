"""One schema: it looks at every field, it is published, and whatever bytes come, an error is one short line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import jsonschema
import pytest

from perfsuite.cli.main import main
from perfsuite.record.case import Case
from perfsuite.record.json_schema import json_schema
from perfsuite.record.run_lines import Begin, End, Ended, as_json
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_record
from tests.record.test_record import RECORDS, line, odd_lines

MOST_CHARACTERS = 300

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "record.schema.json"
FOREIGN = [b"\\ud800", b"1e999", b"NaN", b"\xff", b"\0", b'"', b"{", b"\xef\xbb\xbf"]


def test_the_published_schema_is_that_of_the_reader(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(PUBLISHED.read_text()) == json_schema(), "run: perfsuite schema --output docs/record.schema.json"
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
    fields = json_schema()["anyOf"][1]["properties"]
    assert fields["speed_low"]["anyOf"][0]["minimum"] > 0
    assert fields["test"]["description"] == "The test's node ID."
    assert fields["telemetry"]["anyOf"][0]["properties"]["sm_clock_hz"]["description"].startswith("Median SM clock")


def test_lines_that_the_reader_takes_fit_the_schema_and_real_ones_too() -> None:
    check = jsonschema.Draft202012Validator(json_schema())
    ends = [Begin(schema=1, begin="now", process=1), End(schema=1, end=Ended.STOPPED, cases=2)]
    texts = [*RECORDS[-1].read_text().splitlines()[:3], *(json.dumps(as_json(one)) for one in ends)]
    assert all(check.is_valid(json.loads(text)) for text in texts)
    taken = refused = 0
    for text in random.Random(0).sample(list(odd_lines()), 300):
        try:
            value = json.loads(text)
            Case.of_json(value, "here")
        except RecordError:
            refused += not check.is_valid(value)
            continue
        except ValueError:
            continue
        assert check.is_valid(value), text
        taken += 1
    assert taken > 20
    assert refused > 50


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"params": {"seq_q": [1]}}, "params.seq_q is [1]; it must be text, a number, true, false or null"),
        ({"params": {"scale": 1e200}}, "params.scale is 1e+200; it must be text, a number"),
        ({"mode": {"mig": "on"}}, "mode.mig is 'on'; it must be true or false or null"),
        ({"telemetry": {"power_watts": "hot"}}, "telemetry.power_watts is 'hot'; it must be a number"),
        ({"measured": {"share": [0.5]}}, "measured.share is [0.5]; it must be a number"),
        ({"wall_seconds": -1.0}, "wall_seconds is -1.0; it must be a number from 0"),
        ({"call": -1}, "call is -1; it must be a whole number from 0"),
        ({"warnings": "one"}, "warnings is 'one'; it must be a list"),
        ({"mode": {"m\nig\x1b[2J": 1}}, "mode.m\\nig\\x1b[2J is 1; it must be true or false or null"),
    ],
)
def test_nested_fields_are_looked_at(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(RecordError) as caught:
        Case.of_json(line(**changes), "file:3")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "x" * 10**7},
        {"sentence": ["x" * 10**7]},
        {"measured": {"k" * 10**7: []}},
        {"params": {"k": [[]] * 10**5}},
        {"telemetry": {"sm_clock_hz": "x" * 10**7}},
        {"samples": {"setup": ["x" * 10**7]}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_large_value_is_not_quoted_whole(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text(json.dumps(line(**changes)))
    with pytest.raises(RecordError) as caught:
        read_record(path)
    assert len(str(caught.value)) <= MOST_CHARACTERS
    assert str(caught.value).isprintable()


def test_bytes_end_in_records_or_in_one_short_line(tmp_path: Path) -> None:
    """The seeded fuzzer of records: bits turned, bytes cut, lines mixed, foreign encodings."""
    draw, path = random.Random(1), tmp_path / "record\n\x1b[2J.jsonl"
    whole = (json.dumps(line()) + "\n" + RECORDS[-1].read_text().splitlines()[0] + "\n").encode()
    for number in range(400):
        text = bytearray(whole)
        for _ in range(draw.randint(1, 8)):
            kind, place = draw.randrange(5), draw.randrange(len(text))
            if kind == 0:
                text[place] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del text[place : place + draw.randint(1, 200)]
            elif kind == 2:
                text[place:place] = draw.choice(
                    [b"\\ud800", b"1e999", b"NaN", b"\xff", b"\0", b'"', b"{", b"\xef\xbb\xbf"]
                )
            elif kind == 3:
                text[place : place + 1] = draw.choice([b"null", b"[]", b"{}", b"true", b"-1", b"9" * 30])
            else:
                text = bytearray(
                    text.decode("utf-8", "replace").encode(draw.choice(["utf-16", "latin-1", "utf-8"]), "replace")
                )
        path.write_bytes(text)
        said = ""
        try:
            assert read_record(path), number
        except RecordError as error:
            said = str(error)
        assert len(said) <= MOST_CHARACTERS
        assert said.isprintable()
