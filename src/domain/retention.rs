//! Retention: how long something is kept, as operators write it: `90s`, `15m`, `12h`, `30d` or `forever`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The units, the largest first.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// The longest time in days. PostgreSQL must be able to subtract it from the current time.
const MAX_DAYS: u64 = 36_500;

/// The time for which something is kept. `Forever` is longer than any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retention {
    /// A whole number of seconds, at least one.
    Seconds(u64),
    Forever,
}

impl Retention {
    /// Returns a retention of whole days.
    pub const fn days(days: u64) -> Self {
        Retention::Seconds(days * 86_400)
    }

    /// Returns the length, or `None` if it has no end.
    pub fn length(self) -> Option<Duration> {
        match self {
            Retention::Seconds(seconds) => Some(Duration::from_secs(seconds)),
            Retention::Forever => None,
        }
    }
}

impl fmt::Display for Retention {
    /// Writes the largest unit that leaves no rest.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Retention::Seconds(seconds) = *self else { return out.write_str("forever") };
        let whole = UNITS.into_iter().find(|(_, length)| seconds.is_multiple_of(*length));
        let (unit, length) = whole.unwrap_or(('s', 1));
        write!(out, "{}{unit}", seconds / length)
    }
}

impl FromStr for Retention {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "forever" {
            return Ok(Retention::Forever);
        }
        let wrong = || "must be a whole number with a unit, such as 90s, 15m, 12h or 30d, or `forever`".to_owned();
        let unit = UNITS.into_iter().find_map(|(unit, length)| Some((text.strip_suffix(unit)?, length)));
        let (number, length) = unit.ok_or_else(wrong)?;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(length));
        match seconds {
            Some(0) => Err("must be at least 1s; `forever` keeps everything".to_owned()),
            Some(seconds) if seconds <= MAX_DAYS * 86_400 => Ok(Retention::Seconds(seconds)),
            _ => Err(format!("must be at most {MAX_DAYS}d; `forever` has no end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_retention_is_a_number_with_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000), ("007d", 604_800)] {
            assert_eq!(text.parse(), Ok(Retention::Seconds(seconds)), "{text}");
        }
        assert_eq!("forever".parse(), Ok(Retention::Forever));
        assert_eq!(Retention::days(30).to_string(), "30d");
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in ["", "30", "d", "30 d", "+30d", "-1d", "1.5h", "30D", "1w", "off", "Forever", "１d", "30dd"] {
            let refused = text.parse::<Retention>().unwrap_err();
            assert!(refused.contains("such as 90s"), "{text}: {refused}");
        }
        for text in ["0s", "0d", "000h"] {
            assert!(text.parse::<Retention>().unwrap_err().contains("at least 1s"), "{text}");
        }
        for text in ["36501d", "99999999999999999999d", "18446744073709551615d"] {
            assert!(text.parse::<Retention>().unwrap_err().contains("at most 36500d"), "{text}");
        }
    }

    #[test]
    fn forever_is_longer_than_any_other() {
        assert!(Retention::Forever > Retention::days(MAX_DAYS));
        assert!(Retention::days(1) > Retention::Seconds(86_399));
        assert_eq!(Retention::Forever.length(), None);
    }

    proptest! {
        #[test]
        fn a_retention_is_written_as_it_is_read(seconds in 1..=MAX_DAYS * 86_400) {
            let retention = Retention::Seconds(seconds);
            prop_assert_eq!(retention.to_string().parse(), Ok(retention));
        }
    }
}
