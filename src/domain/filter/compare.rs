//! Comparison of JSON values.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::{all_hold, any_holds};
use crate::domain::matching::{Halt, STEP_BYTES, Work};

/// The order that a condition requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl Relation {
    pub(super) fn admits(self, ordering: Ordering) -> bool {
        match self {
            Relation::Greater => ordering.is_gt(),
            Relation::GreaterOrEqual => ordering.is_ge(),
            Relation::Less => ordering.is_lt(),
            Relation::LessOrEqual => ordering.is_le(),
        }
    }
}

/// Returns the order of two numbers or of two strings, or `None` for any other pair of values.
pub(super) fn order(left: &Value, right: &Value, work: &mut Work<'_, '_>) -> Result<Option<Ordering>, Halt> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => Ok(order_numbers(left, right)),
        (Value::String(left), Value::String(right)) => order_texts(left, right, work).map(Some),
        _ => Ok(None),
    }
}

/// Returns the order of two strings, by code point.
pub(super) fn order_texts(left: &str, right: &str, work: &mut Work<'_, '_>) -> Result<Ordering, Halt> {
    work.charge(left.len().min(right.len()))?;
    Ok(left.cmp(right))
}

/// Returns whether two strings are equal.
pub(super) fn same_text(left: &str, right: &str, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
    if left.len() != right.len() {
        return Ok(false);
    }
    work.charge(left.len())?;
    Ok(left == right)
}

/// Returns whether two values are equal. Numbers are compared by value, not by spelling.
pub(super) fn same(left: &Value, right: &Value, work: &mut Work<'_, '_>) -> Result<bool, Halt> {
    work.charge(STEP_BYTES)?;
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => Ok(order_numbers(left, right) == Some(Ordering::Equal)),
        (Value::String(left), Value::String(right)) => same_text(left, right, work),
        (Value::Array(left), Value::Array(right)) => {
            Ok(left.len() == right.len() && all_hold(left.iter().zip(right), |(left, right)| same(left, right, work))?)
        }
        (Value::Object(left), Value::Object(right)) => {
            let has = |(name, value): (&String, &Value)| {
                work.charge(name.len())?;
                right.get(name).map_or(Ok(false), |other| same(value, other, work))
            };
            Ok(left.len() == right.len() && all_hold(left, has)?)
        }
        _ => Ok(left == right),
    }
}

/// Returns whether a list contains a value.
pub(super) fn is_among(value: &Value, others: &[Value], work: &mut Work<'_, '_>) -> Result<bool, Halt> {
    any_holds(others, |other| same(other, value, work))
}

fn order_numbers(left: &Number, right: &Number) -> Option<Ordering> {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(left), None) => order_mixed(left, right.as_f64()?),
        (None, Some(right)) => order_mixed(right, left.as_f64()?).map(Ordering::reverse),
        (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// Compares an integer with a float without rounding the integer, which may have more digits than
/// a float can hold: first the integer parts, then the float's fraction with 0.
fn order_mixed(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // Casts of floats saturate, and no integer here is near the limits of `i128`.
    let whole = integer.cmp(&(float.trunc() as i128));
    Some(whole.then_with(|| 0.0f64.total_cmp(&(float.fract() + 0.0))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::domain::matching::Allowance;

    fn same(left: &Value, right: &Value) -> bool {
        super::same(left, right, &mut Work::within(u64::MAX, &mut Allowance::unlimited())).unwrap()
    }

    fn order(left: &Value, right: &Value) -> Option<Ordering> {
        super::order(left, right, &mut Work::within(u64::MAX, &mut Allowance::unlimited())).unwrap()
    }

    #[test]
    fn numbers_compare_by_value_and_integers_exactly() {
        assert!(same(&json!(1), &json!(1.0)));
        assert!(same(&json!(0), &json!(-0.0)));
        let big = 9_007_199_254_740_993u64;
        assert!(!same(&json!(big), &json!(big - 1)));
        assert!(!same(&json!(big), &json!((big - 1) as f64)));
        assert_eq!(order(&json!(u64::MAX), &json!(-1)), Some(Ordering::Greater));
        assert_eq!(order(&json!(u64::MAX), &json!(1e300)), Some(Ordering::Less));
        assert_eq!(order(&json!(3), &json!(2.5)), Some(Ordering::Greater));
        assert_eq!(order(&json!(-3), &json!(-2.5)), Some(Ordering::Less));
        assert_eq!(order(&json!(-2), &json!(-2.5)), Some(Ordering::Greater));
        assert_eq!(order(&json!(2.5), &json!(2)), Some(Ordering::Greater));
    }

    #[test]
    fn values_of_different_types_have_no_order() {
        for (left, right) in [(json!(1), json!("1")), (json!(null), json!(null)), (json!([1]), json!([2]))] {
            assert_eq!(order(&left, &right), None);
        }
        assert!(same(&json!({"a": [1, null]}), &json!({"a": [1.0, null]})));
        assert!(!same(&json!({"a": 1}), &json!({"a": 1, "b": 2})));
        assert!(!same(&json!(false), &json!(0)));
    }

    #[test]
    fn strings_are_ordered_by_code_point() {
        assert_eq!(order(&json!("Z"), &json!("a")), Some(Ordering::Less));
        assert_eq!(order(&json!("\u{ffff}"), &json!("\u{10000}")), Some(Ordering::Less));
    }

    proptest! {
        #[test]
        fn small_numbers_are_ordered_like_floats(left in -1000i32..1000, right in -4000i32..4000) {
            let right = f64::from(right) / 4.0;
            prop_assert_eq!(order(&json!(left), &json!(right)), f64::from(left).partial_cmp(&right));
            prop_assert_eq!(order(&json!(right), &json!(left)), right.partial_cmp(&f64::from(left)));
        }
    }
}
