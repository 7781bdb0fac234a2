//! How numbers and spans of time are written.

/// Returns a number in at most about five characters.
pub(super) fn short(value: f64) -> String {
    match value {
        value if value >= 1_000_000.0 => format!("{:.1}M", value / 1_000_000.0),
        value if value >= 10_000.0 => format!("{:.0}k", value / 1_000.0),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => trimmed(format!("{value:.1}")),
        value => trimmed(format!("{value:.2}")),
    }
}

/// Returns a span of time in words.
pub(super) fn duration(milliseconds: f64) -> String {
    let seconds = milliseconds / 1_000.0;
    let (value, unit) = match seconds {
        seconds if seconds < 1.0 => (milliseconds, "ms"),
        seconds if seconds < 60.0 => (seconds, "s"),
        seconds if seconds < 3_600.0 => (seconds / 60.0, "min"),
        seconds if seconds < 172_800.0 => (seconds / 3_600.0, "h"),
        seconds => (seconds / 86_400.0, "d"),
    };
    let text = if value < 10.0 { trimmed(format!("{value:.1}")) } else { format!("{value:.0}") };
    format!("{text} {unit}")
}

/// Returns a decimal number without zeros at its end.
fn trimmed(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (0.5, "0.5"),
            (9.999, "10"),
            (12.34, "12.3"),
            (1_284.0, "1284"),
            (12_840.0, "13k"),
            (2_500_000.0, "2.5M"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn a_span_of_time_has_the_unit_that_fits() {
        for (milliseconds, text) in [
            (0.4, "0.4 ms"),
            (120.0, "120 ms"),
            (1_000.0, "1 s"),
            (1_240.0, "1.2 s"),
            (12_400.0, "12 s"),
            (2_460_000.0, "41 min"),
            (5_400_000.0, "1.5 h"),
            (259_200_000.0, "3 d"),
        ] {
            assert_eq!(duration(milliseconds), text);
        }
    }
}
