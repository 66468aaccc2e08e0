"""The `anthropic` package against `moonlet serve`'s /v1/messages, with the small model.

Its methods have no temperature, top_p and top_k; they go into extra_body."""

import json

import anthropic
import pytest
from serve_client import SLOW

ASK = [{"role": "user", "content": "What is 17 + 25?"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
FIELDS = {"model": "nano", "max_tokens": 120, "extra_body": {"temperature": 0}}
TOOL = {
    "name": "get_weather",
    "description": "the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0, timeout=60 * SLOW
    )


@pytest.fixture(scope="module")
def strict(strict_server):
    return anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{strict_server.port}", api_key="secret", max_retries=0, timeout=60 * SLOW
    )


def text(message):
    return "".join(b.text for b in message.content if b.type == "text")


def test_messages(client):
    message = client.messages.create(messages=ASK, **FIELDS)
    assert message.stop_reason == "end_turn" and message.role == "assistant" and "42" in text(message)
    assert [b.type for b in message.content] == ["thinking", "text"] and message.content[0].thinking
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 0 and message.usage.output_tokens > 0
    assert message._request_id == message.id
    again = client.messages.create(
        messages=ASK + [{"role": "assistant", "content": message.content}, {"role": "user", "content": "Thanks."}],
        **FIELDS,
    )
    assert again.content
    cut = client.messages.create(messages=ASK, model="nano", max_tokens=2)
    assert cut.stop_reason == "max_tokens"
    stopped = client.messages.create(messages=ASK, stop_sequences=["4"], **FIELDS)
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "4"


def test_stream(client):
    whole = client.messages.create(messages=ASK, **FIELDS)
    with client.messages.stream(messages=ASK, **FIELDS) as stream:
        said = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert said == text(final) == text(whole) and final.stop_reason == whole.stop_reason
    assert final.content[0].thinking == whole.content[0].thinking
    assert final.usage.output_tokens == whole.usage.output_tokens
    kinds = [e.type for e in client.messages.create(messages=ASK, stream=True, **FIELDS)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2


def test_thinking(client):
    on = client.messages.create(
        messages=ASK,
        model="nano",
        max_tokens=2000,
        thinking={"type": "enabled", "budget_tokens": 1024},
        extra_body={"temperature": 0},
    )
    off = client.messages.create(messages=ASK, thinking={"type": "disabled"}, **FIELDS)
    assert on.content[0].type == "thinking" and [b.type for b in off.content] == ["text"]
    with client.messages.stream(messages=ASK, thinking={"type": "adaptive"}, **FIELDS) as stream:
        thought = "".join(e.thinking for e in stream if e.type == "thinking")
    assert thought == on.content[0].thinking


def test_tools(client):
    messages = list(WEATHER)
    first = client.messages.create(messages=messages, tools=[TOOL], **FIELDS)
    assert first.stop_reason == "tool_use"
    (use,) = [b for b in first.content if b.type == "tool_use"]
    assert use.name == "get_weather" and use.input["city"] and use.id == "functions.get_weather:0"
    with client.messages.stream(messages=messages, tools=[TOOL], **FIELDS) as stream:
        streamed = stream.get_final_message()
    assert [b.input for b in streamed.content if b.type == "tool_use"] == [use.input]
    messages += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny, 21 degrees"}]},
    ]
    second = client.messages.create(messages=messages, tools=[TOOL], tool_choice={"type": "auto"}, **FIELDS)
    assert second.stop_reason == "end_turn" and text(second)
    none = client.messages.create(messages=WEATHER, tools=[TOOL], tool_choice={"type": "none"}, **FIELDS)
    assert none.stop_reason != "tool_use"


def test_tool_choice(client):
    """A call comes whatever was asked; it satisfies the tool's schema."""
    one = {"disable_parallel_tool_use": True}
    for choice in ({"type": "any", **one}, {"type": "tool", "name": "get_weather", **one}):
        fields = {"messages": ASK, "tools": [{**TOOL, "strict": True}], "tool_choice": choice, **FIELDS}
        message = client.messages.create(**{**fields, "max_tokens": 600})
        assert message.stop_reason == "tool_use"
        (use,) = [b for b in message.content if b.type == "tool_use"]
        assert use.name == "get_weather" and isinstance(use.input["city"], str)
        with client.messages.stream(**{**fields, "max_tokens": 600}) as stream:
            assert [b.input for b in stream.get_final_message().content if b.type == "tool_use"] == [use.input]


def test_output_format(client):
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["plus", "minus"]}, "result": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["kind", "result"],
        "additionalProperties": False,
    }
    config = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    fields = {**FIELDS, "max_tokens": 600, "extra_body": {"temperature": 0, **config}}
    message = client.messages.create(messages=ASK, **fields)
    value = json.loads(text(message))
    assert message.stop_reason == "end_turn" and set(value) == {"kind", "result"} and 0 <= value["result"] <= 99


def test_tool_runner(client):
    """The package's own loop: it calls the function and asks again until there is an answer."""
    asked = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """the weather

        Args:
            city: the city
        """
        asked.append(city)
        return "sunny, 21 degrees"

    runner = client.beta.messages.tool_runner(messages=WEATHER, tools=[get_weather], **FIELDS, max_iterations=4)
    last = list(runner)[-1]
    assert asked and last.stop_reason == "end_turn" and any(b.type == "text" for b in last.content)


def test_count_tokens(client):
    message = client.messages.create(messages=ASK, system="Be short.", tools=[TOOL], **FIELDS)
    counted = client.messages.count_tokens(
        model="nano", messages=ASK, system=[{"type": "text", "text": "Be short."}], tools=[TOOL]
    )
    assert counted.input_tokens == message.usage.input_tokens + message.usage.cache_read_input_tokens


def test_cache(client):
    system = "You are a patient teacher who explains every step in simple words. " * 12
    first, second = (client.messages.create(messages=ASK, system=system, **FIELDS) for _ in range(2))
    assert second.usage.cache_read_input_tokens >= 64 and text(first) == text(second)


def test_exceptions(client, strict):
    with pytest.raises(anthropic.BadRequestError) as e:
        client.messages.create(messages=ASK, model="nano", max_tokens=10**6)
    assert e.value.type == "invalid_request_error" and "context length" in e.value.api_message
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    with pytest.raises(anthropic.BadRequestError) as e:
        client.messages.create(messages=[{"role": "user", "content": [image]}], model="nano", max_tokens=5)
    assert "messages[0].content[0]" in e.value.api_message
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        with pytest.raises(anthropic.BadRequestError) as e:
            client.messages.create(messages=ASK, tools=[], tool_choice=choice, model="nano", max_tokens=5)
        assert "tool_choice" in e.value.api_message
    with pytest.raises(anthropic.NotFoundError) as e:
        client.messages.create(messages=ASK, model="claude", max_tokens=5)
    assert e.value.type == "not_found_error"
    with pytest.raises(anthropic.AuthenticationError) as e:
        strict.with_options(api_key="wrong").messages.create(messages=ASK, model="nano", max_tokens=5)
    assert e.value.type == "authentication_error"
    long = {"messages": ASK, "model": "nano", "max_tokens": 6000, "extra_body": {"ignore_eos": True}}
    with pytest.raises(anthropic.InternalServerError) as e:
        strict.messages.create(**long)
    assert e.value.status_code == 503 and e.value.type == "overloaded_error"
    with pytest.raises(anthropic.APIStatusError) as e:
        list(strict.messages.create(stream=True, **long))
    assert e.value.type == "overloaded_error"


def test_rate_limit(strict, full_queue):
    """A queue that is full is a 429; the package's own retries get through."""
    ask = {"messages": ASK, "model": "nano", "max_tokens": 1}
    with pytest.raises(anthropic.RateLimitError) as e:
        strict.messages.create(**ask)
    assert e.value.type == "rate_limit_error" and int(e.value.response.headers["retry-after"]) >= 1
    assert strict.with_options(max_retries=5).messages.create(**ask).stop_reason == "max_tokens"
