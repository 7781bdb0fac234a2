//! The patterns of a schema: `pattern`, and the names in `patternProperties`.
//!
//! They run on an engine whose time is linear in the text, so a pattern that needs backtracking is refused. Linear does
//! not mean fast: in the worst case the time per byte grows with the compiled size of the pattern. That size is limited,
//! and what a match costs ([`super::steps`]) is computed from it.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Regex};
use serde_json::json;

use crate::domain::limits;

/// The sizes that are told apart, in KiB.
const SIZES: [usize; 5] = [4, 16, 64, 256, limits::PATTERN_KIB];

/// The memory for the states that the engine has computed in advance, per pattern and thread, in bytes.
const STATES_BYTES: usize = 128 * 1024;

/// The patterns of a schema, each with its compiled size in KiB, rounded up to one of [`SIZES`].
#[derive(Debug, Default)]
pub(super) struct Patterns {
    sizes: HashMap<String, usize>,
    total: usize,
}

impl Patterns {
    /// Adds a pattern, or returns the reason why it is refused.
    pub(super) fn add(&mut self, pattern: &str) -> Result<(), String> {
        if self.sizes.contains_key(pattern) {
            return Ok(());
        }
        if self.sizes.len() == limits::SCHEMA_PATTERNS {
            return Err(format!("is one pattern too many: there may be {}", limits::SCHEMA_PATTERNS));
        }
        let size = compiled_size(pattern).ok_or_else(|| {
            format!(
                "is not a pattern that can be matched in linear time: it is malformed, has look-around or \
                 back-references, or is larger than {} KiB when compiled",
                limits::PATTERN_KIB
            )
        })?;
        self.total += size;
        if self.total > limits::PATTERNS_KIB {
            return Err(format!("is too much: all patterns may take {} KiB when compiled", limits::PATTERNS_KIB));
        }
        self.sizes.insert(pattern.to_owned(), size);
        Ok(())
    }

    /// Returns the compiled size of a pattern in KiB.
    pub(super) fn size(&self, pattern: &str) -> usize {
        self.sizes.get(pattern).copied().unwrap_or(limits::PATTERN_KIB)
    }
}

/// Returns the engine for patterns of at most `kib` KiB.
pub(super) fn engine(kib: usize) -> PatternOptions<Regex> {
    PatternOptions::regex().size_limit(kib * 1024).dfa_size_limit(STATES_BYTES)
}

/// Returns the compiled size of a pattern in KiB, rounded up, or `None` if the engine refuses it.
fn compiled_size(pattern: &str) -> Option<usize> {
    let compiles = |kib: &usize| {
        let options = jsonschema::draft202012::options().with_pattern_options(engine(*kib));
        options.build(&json!({"pattern": pattern})).is_ok()
    };
    SIZES.into_iter().find(compiles)
}
