"""The `openai` package against `moonlet serve`: what its users write, with the small model."""
import asyncio
import json
from typing import Annotated, Literal

import openai
import pydantic
import pytest
from serve_client import SLOW

ASK = [{"role": "user", "content": "What is 17 + 25?"}]
GREEDY = {"model": "nano", "temperature": 0, "max_tokens": 120}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "the weather", "parameters": PARAMETERS}}
FLAT_TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "the weather",
    "parameters": PARAMETERS,
    "strict": False,
}
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(
        base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0, timeout=60 * SLOW
    )


@pytest.fixture(scope="module")
def strict(strict_server):
    return openai.OpenAI(
        base_url=f"http://127.0.0.1:{strict_server.port}/v1", api_key="secret", max_retries=0, timeout=60 * SLOW
    )


def test_models(client):
    (model,) = client.models.list()
    assert model.id == "nano" and model.object == "model" and client.models.retrieve("nano").id == "nano"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")


# ---- Chat ----


def test_chat(client):
    answer = client.chat.completions.create(messages=ASK, **GREEDY)
    (choice,) = answer.choices
    assert choice.finish_reason == "stop" and "42" in choice.message.content and choice.message.tool_calls is None
    assert choice.message.reasoning_content and answer.usage.completion_tokens_details.reasoning_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id == answer.id
    off = client.chat.completions.create(
        messages=ASK, **GREEDY, extra_body={"chat_template_kwargs": {"thinking": False}}
    )
    assert off.choices[0].message.reasoning_content is None and off.usage.prompt_tokens > 0


def test_chat_stream(client):
    whole = client.chat.completions.create(messages=ASK, **GREEDY).choices[0]
    content = reasoning = ""
    finishes, usages = [], []
    for chunk in client.chat.completions.create(
        messages=ASK, **GREEDY, stream=True, stream_options={"include_usage": True}
    ):
        if chunk.usage:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            finishes += [choice.finish_reason] if choice.finish_reason else []
    assert (content, reasoning) == (whole.message.content, whole.message.reasoning_content)
    assert finishes == ["stop"] and len(usages) == 1 and usages[0].completion_tokens > 0


def test_chat_stream_helper(client):
    with client.chat.completions.stream(messages=WEATHER, tools=[TOOL], **GREEDY) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
    whole = client.chat.completions.create(messages=WEATHER, tools=[TOOL], **GREEDY)
    mine, want = final.choices[0], whole.choices[0]
    assert mine.finish_reason == want.finish_reason == "tool_calls"
    assert [c.function.arguments for c in mine.message.tool_calls] == [
        c.function.arguments for c in want.message.tool_calls
    ]
    assert [c.id for c in mine.message.tool_calls] == ["functions.get_weather:0"]


def test_chat_tools(client):
    """A round as the package's documentation shows it: the message object goes back as it came."""
    messages = list(WEATHER)
    first = client.chat.completions.create(messages=messages, tools=[TOOL], **GREEDY).choices[0]
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls
    assert json.loads(call.function.arguments)["city"]
    messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
    second = client.chat.completions.create(messages=messages, tools=[TOOL], tool_choice="auto", **GREEDY).choices[0]
    assert second.finish_reason == "stop" and second.message.content
    none = client.chat.completions.create(messages=WEATHER, tools=[TOOL], tool_choice="none", **GREEDY).choices[0]
    assert none.message.tool_calls is None


def test_chat_logprobs_n_seed_stop(client):
    answer = client.chat.completions.create(messages=ASK, **GREEDY, logprobs=True, top_logprobs=2)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert all(e.logprob == e.top_logprobs[0].logprob <= 0 and len(e.top_logprobs) == 2 for e in entries)
    sampled = {**GREEDY, "temperature": 1, "n": 3, "seed": 5}
    a, b = (client.chat.completions.create(messages=ASK, **sampled) for _ in range(2))
    assert [c.message.content for c in a.choices] == [c.message.content for c in b.choices] and len(a.choices) == 3
    content = client.chat.completions.create(messages=ASK, **GREEDY).choices[0].message.content
    cut = client.chat.completions.create(
        messages=ASK, **GREEDY, stop=[content[-4:]], extra_body={"thinking": {"type": "disabled"}}
    )
    assert content[-4:] not in cut.choices[0].message.content


def test_a_stream_given_up(client, server):
    stream = client.chat.completions.create(
        messages=ASK, model="nano", max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    for _ in range(200):
        if server.stats()["num_running_reqs"] == 0:
            return
        asyncio.run(asyncio.sleep(0.05))
    pytest.fail("the request goes on")


def test_many_at_once(server):
    async def run():
        async with openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0
        ) as c:

            async def one(stream):
                if not stream:
                    return (await c.chat.completions.create(messages=ASK, **GREEDY)).choices[0].message.content
                chunks = await c.chat.completions.create(messages=ASK, **GREEDY, stream=True)
                return "".join([x.choices[0].delta.content or "" async for x in chunks])

            return await asyncio.gather(*(one(i % 2) for i in range(32)))

    assert len(set(asyncio.run(run()))) == 1


# ---- Structured output ----

Short = Annotated[str, pydantic.Field(min_length=1, max_length=10)]


class Step(pydantic.BaseModel):
    note: Short
    sure: bool | None


class Sum(pydantic.BaseModel):
    """A nested model, a list of it, an optional, an enumeration: the schema has $defs, anyOf, enum."""

    steps: Annotated[list[Step], pydantic.Field(min_length=1, max_length=2)]
    kind: Literal["plus", "minus"]
    result: Annotated[int, pydantic.Field(ge=0, le=999)]


class GetWeather(pydantic.BaseModel):
    """the weather"""

    city: Short


INSTANT = {"chat_template_kwargs": {"thinking": False}}
ROOM = {"model": "nano", "temperature": 0, "max_tokens": 600}


@pytest.mark.parametrize("body", [{}, INSTANT], ids=["thinking", "instant"])
def test_parse(client, body):
    answer = client.beta.chat.completions.parse(messages=ASK, response_format=Sum, extra_body=body, **ROOM)
    (choice,) = answer.choices
    assert choice.finish_reason == "stop" and isinstance(choice.message.parsed, Sum)
    with client.chat.completions.stream(messages=ASK, response_format=Sum, extra_body=body, **ROOM) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0].message
    assert final.parsed == choice.message.parsed and {"content.delta", "content.done"} <= kinds
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            messages=ASK, response_format=Sum, extra_body=INSTANT, **{**ROOM, "max_tokens": 3}
        )


def test_json_object(client):
    answer = client.chat.completions.create(
        messages=ASK, response_format={"type": "json_object"}, extra_body=INSTANT, **ROOM
    ).choices[0]
    assert answer.finish_reason == "length" or isinstance(json.loads(answer.message.content), dict)


def test_tool_choice(client):
    tools = [openai.pydantic_function_tool(GetWeather), TOOL]
    named = {"type": "function", "function": {"name": "GetWeather"}}
    for choice in ("required", named):
        fields = {"messages": ASK, "tools": tools, "tool_choice": choice, "parallel_tool_calls": False, **ROOM}
        answer = client.chat.completions.create(**fields).choices[0]
        assert answer.finish_reason == "tool_calls"
        (call,) = answer.message.tool_calls
        assert json.loads(call.function.arguments)["city"] is not None
        if choice == named:
            assert call.function.name == "GetWeather" and GetWeather.model_validate_json(call.function.arguments)
        with client.chat.completions.stream(**{**fields, "tools": tools[:1]}, extra_body=INSTANT) as stream:
            final = stream.get_final_completion().choices[0].message
        assert isinstance(final.tool_calls[0].function.parsed_arguments, GetWeather)
    parsed = client.chat.completions.parse(messages=WEATHER, tools=tools[:1], **ROOM).choices[0]
    for call in parsed.message.tool_calls or []:
        assert isinstance(call.function.parsed_arguments, GetWeather)


# ---- Completions ----


def test_completions(client, server):
    ids = server.post("/tokenize", {"prompt": "The cat sat on the mat."})["tokens"]
    fields = {"model": "nano", "temperature": 0, "max_tokens": 8}
    text = client.completions.create(prompt="The cat sat on the mat.", **fields).choices[0].text
    many = client.completions.create(prompt=[ids, ids], **fields)
    assert [c.text for c in many.choices] == [text, text] and [c.index for c in many.choices] == [0, 1]
    streamed = "".join(c.choices[0].text for c in client.completions.create(prompt=ids, stream=True, **fields))
    assert streamed == text
    echo = client.completions.create(
        prompt=ids, echo=True, logprobs=1, extra_body={"return_token_ids": True}, **fields
    ).choices[0]
    assert echo.text == "The cat sat on the mat." + text and echo.prompt_token_ids == ids
    lp = echo.logprobs
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(ids) + len(echo.token_ids)
    assert lp.token_logprobs[0] is None and all(x <= 0 for x in lp.token_logprobs[1:])


# ---- Responses ----


def response_fields(**more):
    return {"model": "nano", "temperature": 0, "max_output_tokens": 120, **more}


def test_responses(client):
    answer = client.responses.create(input="What is 17 + 25?", instructions="Be short.", **response_fields())
    chat = client.chat.completions.create(messages=[{"role": "system", "content": "Be short."}] + ASK, **GREEDY)
    assert answer.status == "completed" and answer.output_text == chat.choices[0].message.content
    assert answer.usage.input_tokens == chat.usage.prompt_tokens
    (thought,) = [i for i in answer.output if i.type == "reasoning"]
    assert thought.content[0].text == chat.choices[0].message.reasoning_content
    cut = client.responses.create(input="What is 17 + 25?", **response_fields(max_output_tokens=2))
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"
    off = client.responses.create(input="What is 17 + 25?", reasoning={"effort": "none"}, **response_fields())
    assert [i.type for i in off.output] == ["message"]


def test_responses_stream(client):
    for fields in ({"input": "What is 17 + 25?"}, {"input": WEATHER, "tools": [FLAT_TOOL]}):
        whole = client.responses.create(**fields, **response_fields())
        events = list(client.responses.create(stream=True, **fields, **response_fields()))
        assert [e.sequence_number for e in events] == list(range(len(events)))
        with client.responses.stream(**fields, **response_fields()) as stream:
            text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
            final = stream.get_final_response()
        assert text == final.output_text == whole.output_text and final.status == "completed"
        assert [i.type for i in final.output] == [i.type for i in whole.output]
        assert [i.arguments for i in final.output if i.type == "function_call"] == [
            i.arguments for i in whole.output if i.type == "function_call"
        ]


def test_responses_tools(client):
    items = list(WEATHER)
    first = client.responses.create(input=items, tools=[FLAT_TOOL], **response_fields())
    (call,) = [i for i in first.output if i.type == "function_call"]
    assert json.loads(call.arguments)["city"] and call.call_id == "functions.get_weather:0"
    items += [i.model_dump(exclude_none=True) for i in first.output]
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 21 degrees"}]
    second = client.responses.create(input=items, tools=[FLAT_TOOL], **response_fields())
    assert second.output_text and not [i for i in second.output if i.type == "function_call"]


def test_responses_parse(client):
    answer = client.responses.parse(input="What is 17 + 25?", text_format=Sum, **response_fields(max_output_tokens=600))
    assert answer.status == "completed" and isinstance(answer.output_parsed, Sum)
    with client.responses.stream(
        input="What is 17 + 25?", text_format=Sum, **response_fields(max_output_tokens=600)
    ) as stream:
        list(stream)
        assert stream.get_final_response().output_parsed == answer.output_parsed
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        fields = response_fields(tools=[FLAT_TOOL], tool_choice=choice, parallel_tool_calls=False)
        made = client.responses.create(input="hi", **{**fields, "max_output_tokens": 600})
        (call,) = [i for i in made.output if i.type == "function_call"]
        assert call.name == "get_weather" and isinstance(json.loads(call.arguments)["city"], str)


def test_responses_are_not_kept(client):
    made = client.responses.create(input="hi", **response_fields(max_output_tokens=2))
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as e:
        client.responses.create(input="hi", previous_response_id=made.id, **response_fields())
    assert e.value.param == "previous_response_id"


# ---- Errors ----


def test_exceptions(client, strict, strict_server):
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(messages=ASK, model="nano", temperature=-1)
    assert e.value.status_code == 400 and e.value.param == "temperature" and e.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(messages=ASK, model="nano", max_tokens=10**6)
    assert e.value.code == "context_length_exceeded"
    odd = {"type": "json_schema", "json_schema": {"name": "odd", "schema": {"not": {}}, "strict": True}}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as e:
            client.chat.completions.create(messages=ASK, model="nano", response_format=odd, stream=stream)
        assert e.value.param == "response_format" and '"not"' in e.value.message
    with pytest.raises(openai.NotFoundError) as e:
        client.chat.completions.create(messages=ASK, model="gpt-4")
    assert e.value.code == "model_not_found" and e.value.param == "model"
    with pytest.raises(openai.AuthenticationError):
        strict.with_options(api_key="wrong").chat.completions.create(messages=ASK, model="nano")
    with pytest.raises(openai.BadRequestError) as e:
        strict.completions.create(model="nano", prompt=["x"] * 50, max_tokens=1)
    assert "share of the queue" in e.value.message
    long = {"model": "nano", "max_tokens": 6000, "extra_body": {"ignore_eos": True}}
    with pytest.raises(openai.InternalServerError) as e:
        strict.chat.completions.create(messages=ASK, **long)
    assert e.value.status_code == 503
    with pytest.raises(openai.APIError):
        list(strict.chat.completions.create(messages=ASK, stream=True, **long))
    events = list(
        strict.responses.create(
            input="x", model="nano", stream=True, max_output_tokens=6000, extra_body={"ignore_eos": True}
        )
    )
    assert events[-1].type == "response.failed" and events[-1].response.error.code == "server_error"


def test_retries(strict, full_queue):
    """The package tries again what was refused for want of room, and succeeds."""
    with pytest.raises(openai.RateLimitError) as e:
        strict.completions.create(model="nano", prompt=["y"], max_tokens=1)
    assert int(e.value.response.headers["retry-after"]) >= 1
    answer = strict.with_options(max_retries=5).completions.create(model="nano", prompt=["y"], max_tokens=1)
    assert answer.choices
