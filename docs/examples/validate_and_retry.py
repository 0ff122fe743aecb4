"""A loop like ``instructor``'s: ask for JSON, validate, show the model its mistakes, ask again.

    sapwood serve --port 30000
    python docs/examples/validate_and_retry.py http://127.0.0.1:30000

In JSON mode (``json_object``) an answer is a JSON object for certain, but not yet the right one;
its shape is only asked for in words. With the schema as ``response_format`` the shape is certain
too, and validation is left with what no schema can say: here, that a meeting ends after it starts.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TypeVar

import openai
from pydantic import BaseModel, Field, ValidationError, model_validator

T = TypeVar("T", bound=BaseModel)

TEXT = "We meet on Tuesday from 14 to 15 o'clock to talk about the new library in Bergen."


class Meeting(BaseModel):
    """An appointment that is found in a text."""

    topic: str = Field(max_length=60)
    place: str = Field(max_length=40)
    start_hour: int = Field(ge=0, le=23)
    end_hour: int = Field(ge=1, le=24)

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Meeting:
        if self.end_hour <= self.start_hour:
            raise ValueError(f"end_hour must be above start_hour, which is {self.start_hour}")
        return self


def json_mode(kind: type[BaseModel]) -> Any:
    """Any JSON object."""
    return {"type": "json_object"}


def schema_mode(kind: type[BaseModel]) -> Any:
    """JSON of a model's schema."""
    schema = kind.model_json_schema()
    return {"type": "json_schema", "json_schema": {"name": kind.__name__, "schema": schema}}


def extract(client: openai.OpenAI, kind: type[T], text: str, form: Any, tries: int = 3) -> T | None:
    """What a text says, as an object; ``None`` where no try led to one."""
    wanted = json.dumps(kind.model_json_schema())
    messages: list[Any] = [
        {"role": "system", "content": f"Answer with JSON of this schema: {wanted}"},
        {"role": "user", "content": text},
    ]
    for attempt in range(1, tries + 1):
        reply = client.chat.completions.create(
            model="default",
            messages=messages,
            response_format=form,
            max_tokens=120,
            seed=attempt,
        )
        answer = reply.choices[0].message.content or ""
        print(f"  try {attempt}: {answer}")
        try:
            return kind.model_validate_json(answer)
        except ValidationError as error:
            mistakes = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
            messages += [
                {"role": "assistant", "content": answer},
                {"role": "user", "content": "Correct this: " + "; ".join(mistakes)},
            ]
    return None


def main() -> int:
    """Both ways; the exit code tells whether one of them led to an object."""
    url = (sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000").rstrip("/") + "/v1"
    found = None
    with openai.OpenAI(base_url=url, api_key="none") as client:
        for name, mode in (("JSON mode", json_mode), ("with the schema", schema_mode)):
            print(f"{name}:")
            found = extract(client, Meeting, TEXT, mode(Meeting), tries=3) or found
            print(f"  {found!r}")
    return 0 if found is not None else 1


if __name__ == "__main__":
    sys.exit(main())
