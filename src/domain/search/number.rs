//! Equality of numbers by their decimal digits, without rounding.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// Returns whether a JSON number equals the number that `text` spells. `text` need not be a number.
pub(super) fn same_number(json: &str, text: &str) -> bool {
    json == text || (is_number(text) && Decimal::of(json).is_some_and(|left| Some(left) == Decimal::of(text)))
}

fn is_number(text: &str) -> bool {
    let begins = matches!(text.as_bytes().first(), Some(b'-' | b'0'..=b'9'));
    // Whitespace is allowed around JSON, and dropped.
    begins && serde_json::from_str::<&RawValue>(text).is_ok_and(|value| value.get() == text)
}

/// A number as its digits times a power of ten. The digits neither begin nor end with a zero, so every number has one
/// form.
#[derive(Debug, PartialEq, Eq)]
struct Decimal<'a> {
    is_negative: bool,
    digits: Cow<'a, str>,
    exponent: i64,
}

impl<'a> Decimal<'a> {
    /// Returns the form of a JSON number, or `None` if its exponent has too many digits.
    fn of(number: &'a str) -> Option<Self> {
        let (is_negative, unsigned) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (digits, places) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (Cow::Owned(format!("{whole}{fraction}")), fraction.len()),
            None => (Cow::Borrowed(mantissa), 0),
        };
        let exponent = exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(places).ok()?)?;
        let significant = digits.trim_end_matches('0').len();
        if significant == 0 {
            return Some(Decimal { is_negative: false, digits: Cow::Borrowed(""), exponent: 0 });
        }
        let exponent = exponent.checked_add(i64::try_from(digits.len() - significant).ok()?)?;
        let digits = match digits {
            Cow::Borrowed(digits) => Cow::Borrowed(digits[..significant].trim_start_matches('0')),
            Cow::Owned(digits) => Cow::Owned(digits[..significant].trim_start_matches('0').to_owned()),
        };
        Some(Decimal { is_negative, digits, exponent })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_the_same_by_value_and_to_the_last_digit() {
        for (left, right) in [
            ("17", "17.0"),
            ("17", "1.7e1"),
            ("17", "170E-1"),
            ("-0", "0.000"),
            ("0", "0e99"),
            ("100", "1e+2"),
            ("0.00120", "1.2e-3"),
            ("1e99999999999999999999", "1e99999999999999999999"),
        ] {
            assert!(same_number(left, right) && same_number(right, left), "{left} {right}");
        }
        for (left, right) in [
            ("9007199254740993", "9007199254740992"),
            ("9007199254740993", "9007199254740993.1"),
            ("12345678901234567890123456789", "12345678901234567890123456788"),
            ("1", "-1"),
            ("1", "10"),
            ("1e99999999999999999999", "1e99999999999999999998"),
            ("1e9223372036854775807", "10e9223372036854775807"),
        ] {
            assert!(!same_number(left, right) && !same_number(right, left), "{left} {right}");
        }
    }

    #[test]
    fn text_that_is_no_json_number_equals_none() {
        for text in ["", " 17", "17 ", "017", "+17", "17.", ".17e2", "1_7", "0x11", "17,0", "NaN", "null", "１７"] {
            assert!(!same_number("17", text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn integers_equal_themselves_in_every_spelling(number in any::<i64>(), zeros in 0usize..30) {
            let json = number.to_string();
            let with_places = format!("{number}.{}", "0".repeat(zeros + 1));
            prop_assert!(same_number(&json, &with_places));
            let with_exponent = format!("{number}{}e-{zeros}", "0".repeat(zeros));
            prop_assert!(same_number(&json, &with_exponent));
            prop_assert!(!same_number(&json, &number.wrapping_add(1).to_string()));
        }
    }
}
