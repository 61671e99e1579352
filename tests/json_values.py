"""Hypothesis strategies for JSON values and texts of every kind."""

from __future__ import annotations

from hypothesis import strategies as st

# any code point, lone surrogates included
texts = st.text(st.characters(exclude_categories=()), max_size=40)
clean_texts = st.text(st.characters(codec="utf-8"), max_size=40)
numbers = (
    st.integers(1 - 2**53, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, -0.0, 1.0, 1e16, 1e21, 1e-7, 5e-324, 1.7976931348623157e308])
)
scalars = st.none() | st.booleans() | numbers


def values(text: st.SearchStrategy[str] = texts) -> st.SearchStrategy[object]:
    """JSON values whose texts come from `text`."""
    return st.recursive(
        scalars | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    )


def messages(text: st.SearchStrategy[str] = texts) -> st.SearchStrategy[dict[str, object]]:
    """Chat messages as endpoints know them, some with fields that they should not have."""
    call = st.fixed_dictionaries(
        {
            "id": text,
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": text, "arguments": text}),
        }
    )
    return st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
        optional={
            "content": text | st.none() | st.lists(values(text), max_size=2),
            "reasoning_content": text,
            "refusal": text | st.none(),
            "tool_call_id": text,
            "tool_calls": st.lists(call, max_size=2),
            "extra": values(text),
        },
    )
