//! Numbers in words.

/// Returns a duration in its largest unit: `3 min`, `2 h`, `5 days`.
pub(super) fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    let whole = |amount: f64| amount.floor() as i64;
    match seconds {
        s if s < 60.0 => format!("{} s", whole(s)),
        s if s < 3_600.0 => format!("{} min", whole(s / 60.0)),
        s if s < 172_800.0 => format!("{} h", whole(s / 3_600.0)),
        s => format!("{} days", whole(s / 86_400.0)),
    }
}

/// Returns a number of bytes in its largest unit: `512 MB`, `3 GB`.
pub(super) fn bytes(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["bytes", "kB", "MB", "GB", "TB"];
    let (mut amount, mut unit) = (bytes, 0);
    while amount >= 10 * 1_024 && unit + 1 < UNITS.len() {
        amount /= 1_024;
        unit += 1;
    }
    format!("{amount} {}", UNITS[unit])
}

/// Returns a number of things: `1 tag`, `3 tags`.
pub(super) fn some(number: i64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns the first few of some names, separated by commas.
pub(super) fn listed<S: AsRef<str>>(names: &[S]) -> String {
    const SHOWN: usize = 3;
    let shown = names.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown}, …") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_one_unit() {
        let durations = [-1.0, 59.9, 60.0, 7_199.0, 7_200.0, 172_800.0].map(duration);
        assert_eq!(durations, ["0 s", "59 s", "1 min", "1 h", "2 h", "2 days"]);
    }

    #[test]
    fn bytes_have_one_unit() {
        assert_eq!([0, 10_239, 10_240, 134_217_728].map(bytes), ["0 bytes", "10239 bytes", "10 kB", "128 MB"]);
    }

    #[test]
    fn names_are_cut_off_after_the_third() {
        assert_eq!(listed(&["a", "b", "c"]), "a, b, c");
        assert_eq!(listed(&["a", "b", "c", "d"]), "a, b, c, …");
    }
}
