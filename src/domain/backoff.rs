//! Backoff: when a failed attempt may be repeated.

use serde::{Deserialize, Deserializer, Serialize};

use super::{invalid::Invalid, limits, seconds::Seconds};

/// The wait after a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "strategy", rename_all = "snake_case", deny_unknown_fields)]
pub enum Backoff {
    /// The same wait after every failure.
    Fixed { seconds: Seconds },
    /// A wait that doubles with every failure, up to `max_seconds`.
    Exponential {
        /// The wait after the first failure.
        base_seconds: Seconds,
        max_seconds: Seconds,
        /// How the waits are spread.
        #[serde(default, deserialize_with = "null_as_default")]
        jitter: Jitter,
        /// The minimum wait; `None` means 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        floor_seconds: Option<Seconds>,
    },
    /// A list of waits; the last one repeats.
    Schedule {
        /// The waits after the first, second, … failure.
        seconds: Vec<Seconds>,
    },
}

/// How an exponential backoff is spread. Without jitter, attempts that failed together are repeated
/// together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// The exact wait.
    #[default]
    None,
    /// A random wait between the floor and the exact wait.
    Full,
}

/// Reads a value; in requests, `null` counts as absent.
fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Returns a random number in `0..1`, for jitter. It is 0.5 if the system has no randomness.
pub(crate) fn chance() -> f64 {
    getrandom::u64().map_or(0.5, |bits| (bits >> 11) as f64 / (1u64 << 53) as f64)
}

impl Backoff {
    /// Returns the wait in seconds after failure number `failures` (1, 2, …). `chance` is a random
    /// number in `0..1`, used only for jitter.
    pub fn seconds_after(&self, failures: i32, chance: f64) -> f64 {
        let failures = failures.max(1);
        match self {
            Backoff::Fixed { seconds } => seconds.as_f64(),
            Backoff::Schedule { seconds } => {
                let step = (failures as usize).min(seconds.len()).max(1) - 1;
                seconds.get(step).map_or(0.0, |wait| wait.as_f64())
            }
            Backoff::Exponential { base_seconds, max_seconds, jitter, floor_seconds } => {
                let floor = floor_seconds.unwrap_or_default().as_f64();
                let doubled = base_seconds.as_f64() * 2f64.powi((failures - 1).min(62));
                let wait = doubled.min(max_seconds.as_f64()).max(floor);
                match jitter {
                    Jitter::None => wait,
                    Jitter::Full => floor + (wait - floor) * chance,
                }
            }
        }
    }

    /// Returns the same backoff with a floor of `seconds` if it has full jitter and no floor.
    /// Without a floor a wait may be close to 0. The floor is at most `base_seconds`.
    #[must_use]
    pub fn with_floor(mut self, seconds: Seconds) -> Self {
        if let Backoff::Exponential { jitter: Jitter::Full, floor_seconds: floor @ None, base_seconds, .. } = &mut self
        {
            *floor = Some(seconds.min(*base_seconds));
        }
        self
    }

    /// Checks the numbers. The field named in an error is relative to the backoff.
    pub fn check(&self) -> Result<(), Invalid> {
        match self {
            Backoff::Fixed { seconds } => check_seconds("seconds", *seconds),
            Backoff::Exponential { base_seconds, max_seconds, floor_seconds, .. } => {
                check_seconds("base_seconds", *base_seconds)?;
                check_seconds("max_seconds", *max_seconds)?;
                check_seconds("floor_seconds", floor_seconds.unwrap_or_default())?;
                if max_seconds < base_seconds {
                    return Err(Invalid::new("max_seconds", "must not be below base_seconds"));
                }
                if floor_seconds.is_some_and(|floor| floor > *max_seconds) {
                    return Err(Invalid::new("floor_seconds", "must not be above max_seconds"));
                }
                Ok(())
            }
            Backoff::Schedule { seconds } => {
                if seconds.is_empty() || seconds.len() > limits::SCHEDULE_STEPS {
                    let reason = format!("must list 1 to {} waits", limits::SCHEDULE_STEPS);
                    return Err(Invalid::new("seconds", reason));
                }
                for (index, wait) in seconds.iter().enumerate() {
                    check_seconds(&format!("seconds[{index}]"), *wait)?;
                }
                Ok(())
            }
        }
    }
}

fn check_seconds(field: &str, seconds: Seconds) -> Result<(), Invalid> {
    if (Seconds::ZERO..=Seconds::MAX_DELAY).contains(&seconds) {
        return Ok(());
    }
    let reason = format!("must be between 0 and {} (30 days)", limits::DELAY_SECONDS);
    Err(Invalid::new(field, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_repeats_its_last_step() {
        let backoff = Backoff::Schedule { seconds: [0.5, 30.0, 300.0].map(Seconds::nearest).to_vec() };
        let waits: Vec<f64> = (1..=5).map(|n| backoff.seconds_after(n, 0.5)).collect();
        assert_eq!(waits, [0.5, 30.0, 300.0, 300.0, 300.0]);
    }

    fn exponential(jitter: Jitter, floor_seconds: Option<i64>) -> Backoff {
        from_base(5.0, jitter, floor_seconds.map(Seconds::whole))
    }

    fn from_base(base: f64, jitter: Jitter, floor_seconds: Option<Seconds>) -> Backoff {
        let (base_seconds, max_seconds) = (Seconds::nearest(base), Seconds::whole(300));
        Backoff::Exponential { base_seconds, max_seconds, jitter, floor_seconds }
    }

    #[test]
    fn exponential_doubles_to_its_cap_and_jitter_spreads_it() {
        let plain = exponential(Jitter::None, None);
        let waits: Vec<f64> = [1, 2, 3, 7, 1000].map(|n| plain.seconds_after(n, 0.1)).into();
        assert_eq!(waits, [5.0, 10.0, 20.0, 300.0, 300.0]);
        assert_eq!(exponential(Jitter::Full, None).seconds_after(2, 0.25), 2.5);
        let short = from_base(0.5, Jitter::None, None);
        assert_eq!([1, 2, 3].map(|n| short.seconds_after(n, 0.1)), [0.5, 1.0, 2.0]);
    }

    #[test]
    fn jitter_spreads_above_the_floor() {
        let spread = exponential(Jitter::Full, Some(4));
        assert_eq!(spread.seconds_after(2, 0.0), 4.0);
        assert_eq!(spread.seconds_after(2, 0.5), 7.0);
        assert_eq!(exponential(Jitter::None, Some(8)).seconds_after(1, 0.5), 8.0);
        let with_floor = |backoff: Backoff| backoff.with_floor(Seconds::whole(1));
        assert_eq!(with_floor(exponential(Jitter::Full, None)), exponential(Jitter::Full, Some(1)));
        assert_eq!(with_floor(exponential(Jitter::Full, Some(0))), exponential(Jitter::Full, Some(0)));
        assert_eq!(with_floor(exponential(Jitter::None, None)), exponential(Jitter::None, None));
        let half = Seconds::nearest(0.5);
        assert_eq!(with_floor(from_base(0.5, Jitter::Full, None)), from_base(0.5, Jitter::Full, Some(half)));
        assert!(exponential(Jitter::Full, Some(301)).check().is_err());
    }

    #[test]
    fn a_floor_that_was_not_given_is_not_written() {
        let text = r#"{"strategy":"exponential","base_seconds":0.5,"max_seconds":300,"jitter":"full"}"#;
        let backoff: Backoff = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&backoff).unwrap(), text);
    }

    #[test]
    fn waits_are_bounded() {
        let fixed = |seconds: f64| Backoff::Fixed { seconds: Seconds::nearest(seconds) }.check();
        for fine in [0.0, 0.000_001, 0.5, 2_592_000.0] {
            assert!(fixed(fine).is_ok(), "{fine}");
        }
        for bad in [-1.0, -0.000_000_1, 2_592_000.1, f64::INFINITY] {
            assert!(fixed(bad).is_err(), "{bad}");
        }
        assert!(Backoff::Schedule { seconds: vec![] }.check().is_err());
    }
}
