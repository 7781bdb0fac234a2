//! Checks of strings before they are stored: PostgreSQL refuses U+0000 in text, and every string has
//! a maximum length.

/// Checks a string of 1 to `max` characters. The error is the reason for refusal.
pub(crate) fn check(value: &str, max: usize) -> Result<(), String> {
    if value.is_empty() {
        return Err("must not be empty".into());
    }
    check_optional(value, max)
}

/// Checks a string of 0 to `max` characters. The error is the reason for refusal.
pub(crate) fn check_optional(value: &str, max: usize) -> Result<(), String> {
    if value.contains('\0') {
        return Err("must not contain the character U+0000".into());
    }
    // A string has at most as many characters as bytes, so short strings need not be counted.
    if value.len() > max && value.chars().count() > max {
        return Err(format!("must be at most {max} characters long"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_counts_characters_and_not_bytes() {
        assert!(check(&"ü".repeat(255), 255).is_ok());
        assert!(check(&"ü".repeat(256), 255).is_err());
    }

    #[test]
    fn empty_and_nul_are_refused() {
        assert!(check("", 10).is_err());
        assert!(check("a\0b", 10).is_err());
        assert!(check_optional("", 10).is_ok());
    }
}
