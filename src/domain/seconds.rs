//! Durations as clients write them: seconds, with fractions down to the microsecond.
//!
//! PostgreSQL stores time in microseconds, so a finer fraction is rounded to the nearest one. A
//! duration is serialised as it was parsed: `0.5` stays `0.5`, and `5` stays `5`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::limits;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// A duration in seconds with microsecond precision. It may be out of bounds until it is checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds {
    micros: i64,
}

impl Seconds {
    pub const ZERO: Self = Self::whole(0);

    /// The longest delay or backoff.
    pub const MAX_DELAY: Self = Self::whole(limits::DELAY_SECONDS);

    /// Returns a whole number of seconds.
    pub const fn whole(seconds: i64) -> Self {
        Self { micros: seconds.saturating_mul(MICROS_PER_SECOND) }
    }

    /// Returns the duration nearest to a number of seconds. A negative number stays negative, and a
    /// number that is too large becomes the largest duration, so a range check refuses both.
    pub fn nearest(seconds: f64) -> Self {
        let micros = seconds * MICROS_PER_SECOND as f64;
        let rounded = if micros < 0.0 { micros.floor() } else { micros.round() };
        // Casts of floats saturate.
        Self { micros: rounded as i64 }
    }

    /// Returns the number of seconds.
    pub fn as_f64(self) -> f64 {
        self.micros as f64 / MICROS_PER_SECOND as f64
    }

    /// Returns the duration of a timer. A negative one is zero.
    pub fn as_duration(self) -> Duration {
        Duration::from_micros(u64::try_from(self.micros).unwrap_or(0))
    }

    /// Returns the number of seconds if it is whole.
    fn as_whole(self) -> Option<i64> {
        (self.micros % MICROS_PER_SECOND == 0).then_some(self.micros / MICROS_PER_SECOND)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.as_f64())
    }
}

impl FromStr for Seconds {
    type Err = String;

    /// Parses a configured delay or backoff.
    fn from_str(text: &str) -> Result<Self, String> {
        let number: f64 = text.parse().map_err(|_| "is not a number".to_owned())?;
        let seconds = Self::nearest(number);
        if number.is_finite() && (Self::ZERO..=Self::MAX_DELAY).contains(&seconds) {
            return Ok(seconds);
        }
        Err(format!("must be between 0 and {}", Self::MAX_DELAY))
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_whole() {
            Some(whole) => serializer.serialize_i64(whole),
            None => serializer.serialize_f64(self.as_f64()),
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Seconds;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number of seconds")
            }
            fn visit_i64<E: Error>(self, seconds: i64) -> Result<Seconds, E> {
                Ok(Seconds::whole(seconds))
            }
            fn visit_u64<E: Error>(self, seconds: u64) -> Result<Seconds, E> {
                Ok(Seconds::whole(i64::try_from(seconds).unwrap_or(i64::MAX)))
            }
            fn visit_f64<E: Error>(self, seconds: f64) -> Result<Seconds, E> {
                Ok(Seconds::nearest(seconds))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rewritten(json: &str) -> Option<String> {
        let seconds: Seconds = serde_json::from_str(json).ok()?;
        serde_json::to_string(&seconds).ok()
    }

    #[test]
    fn a_duration_survives_serialisation() {
        for text in ["0", "5", "0.5", "0.1", "2.000001", "2592000", "2591999.999999", "0.001", "1e-6", "-1", "-0.5"] {
            assert_eq!(rewritten(text).as_deref(), Some(text));
        }
    }

    #[test]
    fn equal_durations_are_serialised_alike() {
        for (given, written) in [("5.0", "5"), ("5e-1", "0.5"), ("1E3", "1000"), ("0.50", "0.5"), ("-0.0", "0")] {
            assert_eq!(rewritten(given).as_deref(), Some(written));
        }
    }

    #[test]
    fn fractions_finer_than_a_microsecond_are_rounded() {
        for (given, written) in [("0.0000004", "0"), ("0.0000006", "1e-6"), ("0.3333333333333333", "0.333333")] {
            assert_eq!(rewritten(given).as_deref(), Some(written));
        }
        assert!(Seconds::nearest(-0.000_000_1) < Seconds::ZERO, "a negative number stays negative");
    }

    #[test]
    fn too_large_numbers_stay_too_large_and_other_values_are_refused() {
        for huge in ["18446744073709551615", "9223372036854775807", "99999999999999999999999", "1e300"] {
            let seconds: Seconds = serde_json::from_str(huge).unwrap();
            assert!(seconds > Seconds::MAX_DELAY, "{huge}");
        }
        for bad in ["\"5\"", "true", "null", "[5]", "1e400", "NaN", "Infinity"] {
            assert_eq!(rewritten(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_setting_is_a_finite_number_within_bounds() {
        for (text, seconds) in [("300", 300.0), ("0.5", 0.5), ("5e-1", 0.5), ("0", 0.0), ("2592000", 2_592_000.0)] {
            assert_eq!(text.parse::<Seconds>().unwrap().as_f64(), seconds);
        }
        for bad in ["", "soon", "NaN", "nan", "inf", "-inf", "infinity", "-1", "-0.1", "2592000.5", "1e300"] {
            assert!(bad.parse::<Seconds>().is_err(), "{bad}");
        }
        assert_eq!(Seconds::whole(300).to_string(), "300");
        assert_eq!(Seconds::nearest(0.5).to_string(), "0.5");
    }

    proptest! {
        #[test]
        fn every_microsecond_within_bounds_survives_serialisation(micros in 0..=2_592_000_000_000i64) {
            let seconds = Seconds { micros };
            let text = serde_json::to_string(&seconds).unwrap();
            prop_assert_eq!(serde_json::from_str::<Seconds>(&text).unwrap(), seconds);
        }
    }
}
