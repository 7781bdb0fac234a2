//! Parsing of filters.

use serde_json::{Map, Value};

use super::compare::Relation;
use super::field::Field;
use super::{Filter, Node, Operand, Test};
use crate::domain::invalid::Invalid;
use crate::domain::{limits, text, timestamp};

impl Filter {
    /// Parses a filter. The field named in an error is relative to the filter, such as
    /// `$or[1].payload.amount.$gt`.
    pub fn parse(value: &Value) -> Result<Self, Invalid> {
        let mut parser = Parser { conditions: 0 };
        let root = parser.filter(value, 1)?;
        // Checked after the parts, because their errors are more specific.
        if value.to_string().len() > limits::FILTER_BYTES {
            return Err(invalid_here(format!("must be at most {} bytes of JSON", limits::FILTER_BYTES)));
        }
        Ok(Self { source: value.clone(), root })
    }
}

struct Parser {
    conditions: usize,
}

impl Parser {
    fn filter(&mut self, value: &Value, depth: usize) -> Result<Node, Invalid> {
        check_depth(depth)?;
        let Value::Object(entries) = value else { return Err(invalid_here("must be a JSON object")) };
        let parts = entries.iter().map(|(name, value)| {
            let part = match name.as_str() {
                "$and" => self.filters(value, depth).map(Node::All),
                "$or" => self.filters(value, depth).map(Node::Any),
                "$not" => self.filter(value, depth + 1).map(not),
                _ => self.field(name, value, depth),
            };
            part.map_err(|invalid| invalid.inside(&truncated(name)))
        });
        parts.collect::<Result<_, _>>().map(Node::All)
    }

    fn filters(&mut self, value: &Value, depth: usize) -> Result<Vec<Node>, Invalid> {
        let items = list(value)?;
        if items.is_empty() {
            return Err(invalid_here("must not be empty"));
        }
        let parse =
            |(index, item)| self.filter(item, depth + 1).map_err(|invalid| invalid.inside(&format!("[{index}]")));
        items.iter().enumerate().map(parse).collect()
    }

    fn field(&mut self, name: &str, value: &Value, depth: usize) -> Result<Node, Invalid> {
        let field = Field::parse(name).map_err(invalid_here)?;
        match value {
            Value::Object(operators) => self.operators(&field, operators, depth),
            bare => self.condition(&field, "$eq", bare),
        }
    }

    fn operators(&mut self, field: &Field, operators: &Map<String, Value>, depth: usize) -> Result<Node, Invalid> {
        check_depth(depth)?;
        if operators.is_empty() {
            return Err(invalid_here("must have an operator"));
        }
        let parse = |(name, value): (&String, &Value)| {
            let node = match (name.as_str(), value) {
                ("$not", Value::Object(inner)) => self.operators(field, inner, depth + 1).map(not),
                ("$not", _) => Err(invalid_here("must be an object of operators")),
                _ => self.condition(field, name, value),
            };
            node.map_err(|invalid| invalid.inside(&truncated(name)))
        };
        operators.iter().map(parse).collect::<Result<_, _>>().map(Node::All)
    }

    fn condition(&mut self, field: &Field, operator: &str, value: &Value) -> Result<Node, Invalid> {
        self.conditions += 1;
        if self.conditions > limits::FILTER_CONDITIONS {
            return Err(invalid_here(format!("is one condition too many: there may be {}", limits::FILTER_CONDITIONS)));
        }
        let test = parse_test(field, operator, value)?;
        let condition = Node::Condition(field.clone(), test);
        Ok(if matches!(operator, "$neq" | "$nin") { not(condition) } else { condition })
    }
}

fn parse_test(field: &Field, operator: &str, value: &Value) -> Result<Test, Invalid> {
    match operator {
        "$eq" | "$neq" => Ok(Test::OneOf(vec![operand(field, value, Use::Equality)?])),
        "$in" | "$nin" => parse_list(field, value).map(Test::OneOf),
        "$gt" => ordered(field, Relation::Greater, value),
        "$gte" => ordered(field, Relation::GreaterOrEqual, value),
        "$lt" => ordered(field, Relation::Less, value),
        "$lte" => ordered(field, Relation::LessOrEqual, value),
        "$exists" => value.as_bool().map(Test::Exists).ok_or_else(|| invalid_here("must be true or false")),
        "$startsWith" => affix(field, value).map(Test::StartsWith),
        "$endsWith" => affix(field, value).map(Test::EndsWith),
        "$contains" => part(field, value).map(Test::Contains),
        _ => Err(invalid_here("is not an operator")),
    }
}

fn parse_list(field: &Field, value: &Value) -> Result<Vec<Operand>, Invalid> {
    let items = list(value)?;
    let parse =
        |(index, item)| operand(field, item, Use::Equality).map_err(|invalid| invalid.inside(&format!("[{index}]")));
    items.iter().enumerate().map(parse).collect()
}

fn ordered(field: &Field, relation: Relation, value: &Value) -> Result<Test, Invalid> {
    if matches!(field, Field::Tags) {
        return Err(invalid_here("cannot be asked of tags"));
    }
    Ok(Test::Is(relation, operand(field, value, Use::Order)?))
}

fn affix(field: &Field, value: &Value) -> Result<String, Invalid> {
    if matches!(field, Field::Tags | Field::CreatedAt) {
        return Err(invalid_here("can be asked of strings only"));
    }
    check_value(value, 1)?;
    value.as_str().map(str::to_owned).ok_or_else(|| invalid_here("must be a string"))
}

fn part(field: &Field, value: &Value) -> Result<Value, Invalid> {
    if matches!(field, Field::CreatedAt) {
        return Err(invalid_here("cannot be asked of created_at"));
    }
    check_value(value, 1)?;
    if !matches!(field, Field::Payload | Field::PayloadAt(_)) && !value.is_string() {
        return Err(invalid_here("must be a string"));
    }
    Ok(value.clone())
}

/// The kind of comparison that an operand is used in.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Equality,
    Order,
}

/// Parses the value that a field is compared with. A value that could never match is refused,
/// because its author expects it to match.
fn operand(field: &Field, value: &Value, purpose: Use) -> Result<Operand, Invalid> {
    check_value(value, 1)?;
    match field {
        Field::CreatedAt => {
            let time = timestamp::parse(value.as_str().unwrap_or_default()).map_err(invalid_here)?;
            return Ok(Operand::Time(time));
        }
        Field::EventType | Field::Label(_) if !value.is_string() => return Err(invalid_here("must be a string")),
        Field::Tags if !is_string_or_strings(value) => {
            return Err(invalid_here("must be a string or a list of strings"));
        }
        _ => {}
    }
    if purpose == Use::Order && !value.is_number() && !value.is_string() {
        return Err(invalid_here("must be a number or a string"));
    }
    Ok(Operand::Json(value.clone()))
}

fn is_string_or_strings(value: &Value) -> bool {
    value.as_array().map_or_else(|| value.is_string(), |items| items.iter().all(Value::is_string))
}

fn check_value(value: &Value, depth: usize) -> Result<(), Invalid> {
    check_depth(depth)?;
    match value {
        Value::String(string) => text::check_optional(string, limits::FILTER_STRING_CHARS).map_err(invalid_here),
        Value::Array(_) => list(value)?.iter().try_for_each(|item| check_value(item, depth + 1)),
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            text::check_optional(name, limits::FILTER_STRING_CHARS).map_err(invalid_here)?;
            check_value(value, depth + 1)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn check_depth(depth: usize) -> Result<(), Invalid> {
    if depth <= limits::FILTER_DEPTH {
        return Ok(());
    }
    Err(invalid_here(format!("must nest at most {} deep", limits::FILTER_DEPTH)))
}

fn list(value: &Value) -> Result<&[Value], Invalid> {
    let items = value.as_array().ok_or_else(|| invalid_here("must be a list"))?;
    if items.len() > limits::FILTER_VALUES {
        return Err(invalid_here(format!("must be at most {} items", limits::FILTER_VALUES)));
    }
    Ok(items)
}

fn not(node: Node) -> Node {
    Node::Not(Box::new(node))
}

fn truncated(name: &str) -> String {
    name.chars().take(80).collect()
}

/// Returns an error about the value being parsed. The callers prepend its position with
/// [`Invalid::inside`].
fn invalid_here(reason: impl Into<String>) -> Invalid {
    Invalid::new("", reason)
}
