//! When a failed attempt may be repeated.

use serde::{Deserialize, Serialize};

use super::{invalid::Invalid, limits};

/// How long to wait after a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "strategy", rename_all = "snake_case", deny_unknown_fields)]
pub enum Backoff {
    /// Always the same.
    Fixed {
        /// The wait.
        seconds: i64,
    },
    /// Doubles with every failure, up to a cap.
    Exponential {
        /// The wait after the first failure.
        base_seconds: i64,
        /// The cap.
        max_seconds: i64,
        /// Whether to spread the waits.
        #[serde(default)]
        jitter: Jitter,
    },
    /// As listed; the last repeats.
    Schedule {
        /// The waits after the first, second, … failure.
        seconds: Vec<i64>,
    },
}

/// How an exponential backoff is spread, so that what failed together does not return together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Not at all.
    #[default]
    None,
    /// Anywhere between nothing and the whole wait.
    Full,
}

impl Backoff {
    /// The wait in seconds after failure number `failures` (1, 2, …). `chance` is a random
    /// number in 0..1, used for jitter alone.
    pub fn seconds_after(&self, failures: i32, chance: f64) -> f64 {
        let failures = failures.max(1);
        match self {
            Backoff::Fixed { seconds } => *seconds as f64,
            Backoff::Schedule { seconds } => {
                let step = (failures as usize).min(seconds.len()).max(1) - 1;
                seconds.get(step).copied().unwrap_or(0) as f64
            }
            Backoff::Exponential { base_seconds, max_seconds, jitter } => {
                let doubled = *base_seconds as f64 * 2f64.powi((failures - 1).min(62));
                let wait = doubled.min(*max_seconds as f64);
                match jitter {
                    Jitter::None => wait,
                    Jitter::Full => wait * chance,
                }
            }
        }
    }

    /// Checks the numbers; the field named is relative to the backoff itself.
    pub fn check(&self) -> Result<(), Invalid> {
        match self {
            Backoff::Fixed { seconds } => check_seconds("seconds", *seconds),
            Backoff::Exponential { base_seconds, max_seconds, .. } => {
                check_seconds("base_seconds", *base_seconds)?;
                check_seconds("max_seconds", *max_seconds)?;
                if max_seconds < base_seconds {
                    return Err(Invalid::new("max_seconds", "must not be below base_seconds"));
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

fn check_seconds(field: &str, seconds: i64) -> Result<(), Invalid> {
    if (0..=limits::DELAY_SECONDS).contains(&seconds) {
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
        let backoff = Backoff::Schedule { seconds: vec![5, 30, 300] };
        let waits: Vec<f64> = (1..=5).map(|n| backoff.seconds_after(n, 0.5)).collect();
        assert_eq!(waits, [5.0, 30.0, 300.0, 300.0, 300.0]);
    }

    #[test]
    fn exponential_doubles_to_its_cap_and_jitter_spreads_it() {
        let plain = Backoff::Exponential { base_seconds: 5, max_seconds: 300, jitter: Jitter::None };
        let waits: Vec<f64> = [1, 2, 3, 7, 1000].map(|n| plain.seconds_after(n, 0.1)).into();
        assert_eq!(waits, [5.0, 10.0, 20.0, 300.0, 300.0]);
        let spread = Backoff::Exponential { base_seconds: 5, max_seconds: 300, jitter: Jitter::Full };
        assert_eq!(spread.seconds_after(2, 0.25), 2.5);
    }

    #[test]
    fn waits_are_bounded() {
        assert!(Backoff::Fixed { seconds: 0 }.check().is_ok());
        assert!(Backoff::Fixed { seconds: -1 }.check().is_err());
        assert!(Backoff::Fixed { seconds: 2_592_001 }.check().is_err());
        assert!(Backoff::Schedule { seconds: vec![] }.check().is_err());
    }
}
