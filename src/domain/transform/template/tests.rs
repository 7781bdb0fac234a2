//! Tests: what templates render, and that no template exhausts the server.

use std::time::{Duration, Instant};

use chrono::DateTime;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

fn render(payload: &Json, text: &str, is_json: bool) -> Result<String, String> {
    let labels = BTreeMap::from([("region".to_owned(), "eu".to_owned())]);
    let payload = payload.to_string();
    let input = TransformInput {
        webhook_id: "msg_1",
        event_id: Some(EventId(7)),
        event_type: Some("order.paid"),
        title: "An order",
        created_at: DateTime::UNIX_EPOCH,
        tags: &["a".to_owned(), "b".to_owned()],
        labels: &labels,
        payload: &payload,
        correlation_id: None,
        ordering_key: None,
        source: "/",
    };
    let body = Template::parse(text, is_json)?.render(&input, &payload)?;
    String::from_utf8(body).map_err(|error| error.to_string())
}

fn order() -> Json {
    json!({"id": 7, "price": "2.50", "name": "say \"hi\"\n", "items": [{"sku": "x"}, {"sku": "y"}], "none": null})
}

fn text(template: &str) -> String {
    render(&order(), template, false).unwrap()
}

fn json(template: &str) -> String {
    render(&order(), template, true).unwrap()
}

#[test]
fn every_field_of_an_event_is_a_variable() {
    let all = "{{ webhook_id }} {{ event_type }} {{ title }} {{ created_at }} {{ tags|join('+') }} {{ labels.region }} {{ payload.id }}";
    assert_eq!(text(all), "msg_1 order.paid An order 1970-01-01T00:00:00.000000Z a+b eu 7");
    assert_eq!(text("[{{ correlation_id }}]"), "[]");
}

#[test]
fn a_missing_value_is_empty_and_can_have_a_default() {
    assert_eq!(text("[{{ payload.a.b.c }}][{{ payload.a.b|default('x') }}]"), "[][x]");
}

#[test]
fn in_json_strings_are_escaped_and_other_values_are_json() {
    assert_eq!(
        json(r#"{"text": "Order {{ payload.id }}: {{ payload.name }}"}"#),
        r#"{"text": "Order 7: say \"hi\"\n"}"#
    );
    assert_eq!(json(r#"{"items": {{ payload.items }}}"#), r#"{"items": [{"sku":"x"},{"sku":"y"}]}"#);
    assert_eq!(json(r"{{ payload.name|tojson }}"), r#""say \"hi\"\n""#);
    assert_eq!(json("{{ payload.none }} {{ payload.id == 7 }}"), "null true");
}

#[test]
fn loops_conditions_variables_and_arithmetic_are_supported() {
    assert_eq!(text("{% for item in payload.items %}{{ loop.index }}{{ item.sku }}{% endfor %}"), "1x2y");
    assert_eq!(text("{% for name, value in labels|items %}{{ name }}={{ value }}{% endfor %}"), "region=eu");
    assert_eq!(text("{% if event_type in ['order.paid', 'x'] and payload.id > 5 %}yes{% else %}no{% endif %}"), "yes");
    assert_eq!(text("{% set price = payload.price %}{{ (price|float * 100)|int + payload.id|int }}"), "257");
    assert_eq!(text("{{ payload.name|upper|replace('HI', 'ho')|trim }}"), "SAY \"ho\"");
    assert_eq!(text("{{ payload.items|length }}{{ payload.items|first }}{{ 7|string }}"), "2{\"sku\":\"x\"}7");
}

#[test]
fn an_error_is_found_at_registration_with_its_line() {
    for (bad, line) in [
        ("a\nb {{ c", 2),
        ("{% if x %}", 1),
        ("\n\n{% nonsense %}", 3),
        ("{{ 1|nonsense }}", 1),
        ("\n{{ 1 is nonsense }}", 2),
        ("{{ nonsense(1) }}", 1),
    ] {
        let reason = Template::parse(bad, true).unwrap_err();
        assert!(reason.ends_with(&format!("(line {line})")), "{bad}: {reason}");
    }
}

#[test]
fn constructs_that_can_grow_are_refused() {
    for bad in [
        "{{ range(1000000) }}",
        "{% for x in range(1000000) %}x{% endfor %}",
        "{{ 'x' * 100000000 }}",
        "{{ payload.name * 100000000 }}",
        "{{ payload.id|int(payload.name) * 1000000 }}",
        "{{ [1] * 100000000 }}",
        "{% set a = a ~ a %}",
        "{% set a = a + a %}",
        "{% set a = [a, a] %}",
        "{% set a = {'x': a} %}",
        "{% for a in [[a, a]] %}{% endfor %}",
        "{% for a in (a, a) %}{% endfor %}",
        "{% with a = (a, a) %}{% endwith %}",
        "{% set a %}{{ a }}{{ a }}{% endset %}",
        "{% filter upper %}x{% endfilter %}",
        "{% autoescape true %}x{% endautoescape %}",
        "{% for x in payload recursive %}{{ loop(x) }}{% endfor %}",
        "{{ payload.name[0:] }}",
        "{{ 'x'|indent(1000000000) }}",
        "{{ '%0999999999d'|format(1) }}",
        "{% macro m() %}{% endmacro %}",
        "{% include 'x' %}",
        "{% set payload.x = 1 %}",
        "{{ d(*payload) }}",
        "{{ 1|d(*payload) }}",
        "{{ 2 ** 3 ~ 1 }}",
        "{% do x() %}",
        "{{ loop.cycle(1) }}",
    ] {
        assert!(Template::parse(bad, false).is_err(), "{bad}");
    }
}

/// A very deep expression must not overflow the stack.
#[test]
fn a_template_of_any_shape_is_accepted_or_refused_without_a_crash() {
    let fill = |start: &str, part: &str, end: &str| {
        let available = limits::TEMPLATE_BYTES - start.len() - end.len();
        format!("{start}{}{end}", part.repeat(available / part.len()))
    };
    for text in [
        fill("{{", "-", "1}}"),
        fill("{{", "not ", "1}}"),
        fill("{{", "(", "}}"),
        fill("{{", "[", "}}"),
        fill("{{1", "|d", "}}"),
        fill("{{1", "-1", "}}"),
        fill("{{a", ".b", "}}"),
        fill("{{a", "[0]", "}}"),
        fill("{{1", "**1", "}}"),
        fill("{{1", " if 1", "}}"),
        fill("{{1", " if 1 else 1", "}}"),
        fill("{{1", "<1", "}}"),
        fill("{{1", " is none", "}}"),
        fill("{{1", " and 1", "}}"),
        fill("{% if 1 %}", "{% elif 1 %}", "{% endif %}"),
        fill("", "{% if 1 %}", ""),
        fill("", "{% for x in y %}", ""),
        fill("", "{% with x=y %}", ""),
        fill("", "{{", ""),
        fill("", "{%", ""),
        fill("", "{#", ""),
        fill("", "{{1}}", ""),
        fill("", "x", ""),
    ] {
        let _ = Template::parse(&text, false);
    }
    assert!(Template::parse(&"x".repeat(limits::TEMPLATE_BYTES), false).is_ok());
    assert!(Template::parse(&"x".repeat(limits::TEMPLATE_BYTES + 1), false).is_err());
    assert!(Template::parse("\0", false).is_err());
}

fn assert_stopped_soon(payload: &Json, template: &str) {
    let start = Instant::now();
    let result = render(payload, template, false);
    assert!(result.is_err(), "{template}");
    assert!(start.elapsed() < Duration::from_secs(20), "{template}: {:?}", start.elapsed());
}

#[test]
fn loops_run_out_of_steps() {
    let payload = json!({"l": vec![1; 1000]});
    assert_stopped_soon(&payload, "{% for a in payload.l %}{% for b in payload.l %}{{ '' }}{% endfor %}{% endfor %}");
    let loops = format!("{}{}", "{% for a in payload.l %}".repeat(50), "{% endfor %}".repeat(50));
    assert_stopped_soon(&payload, &loops);
}

#[test]
fn a_large_payload_allows_fewer_steps() {
    assert_eq!([0, 10_000, 100_000, 1_048_576].map(max_steps), [100_000, 10_000, 2_000, 2_000]);
    let part = vec![json!({"a": "b"}); 20_000];
    let payload = json!({"l": part, "m": part});
    assert_stopped_soon(&payload, "{% for a in payload.l %}{% if payload.l == payload.m %}{% endif %}{% endfor %}");
    assert_stopped_soon(&payload, "{% for a in payload.l %}{% set x = payload|tojson|length %}{% endfor %}");
}

#[test]
fn output_and_filter_results_are_bounded_while_written() {
    let payload = json!({"s": "x".repeat(100_000), "l": vec![1; 20], "q": "\"".repeat(1000), "n": [[1]]});
    assert_stopped_soon(&payload, "{% for a in payload.l %}{{ payload.s }}{% endfor %}");
    assert_stopped_soon(&payload, "{{ payload.s|replace('x', payload.s) }}");
    assert_stopped_soon(&payload, "{{ payload.s|join(payload.s) }}");
    assert_stopped_soon(&payload, "{{ payload.s|replace('', 'y') }}");
    assert_stopped_soon(&payload, &format!("{{{{ payload.q{} }}}}", "|tojson|string".repeat(40)));
    assert_stopped_soon(&payload, &"{% set a = payload.s|upper %}".repeat(100));
}

#[test]
fn a_payload_of_full_size_can_be_rendered() {
    let payload = json!({"s": "x".repeat(900_000)});
    assert_eq!(render(&payload, "{{ payload|tojson }}", true).unwrap(), payload.to_string());
}

proptest! {
    #[test]
    fn no_text_crashes_the_parser(template in "(\\{\\{|\\}\\}|\\{%|%\\}|[a-z0-9 .|'\\[\\]()+*~-]| if | for | in |else|end|set ){0,30}") {
        let _ = render(&order(), &template, true);
    }

    #[test]
    fn no_string_can_leave_its_quotes(name in any::<String>()) {
        let rendered = render(&json!({ "name": name }), r#"{"a": "{{ payload.name }}"}"#, true).unwrap();
        let rendered: Json = serde_json::from_str(&rendered).unwrap();
        prop_assert_eq!(rendered, json!({ "a": name }));
    }
}
