//! The SQL statements in the files of `sql/`.
//!
//! A file is one whole statement with named parameters in the syntax of `psql`. Its first lines
//! declare the parameters and their types, in the order in which Rust binds them:
//!
//! ```sql
//! -- :namespace_id int, :keys text[],
//! -- :consumers bigint[]
//! ```
//!
//! `statement!` includes a file. At compile time, it replaces the names by `$1`, `$2`, … in that order,
//! drops the comments, and adds a first line with the name of the file, which identifies the statement
//! in `pg_stat_activity`. A parameter that is used but not declared, or declared but not used, is a
//! compile error. `tests/statements.rs` prepares every file.
//!
//! To run a file by hand, set each parameter to an SQL expression of its type:
//!
//! ```text
//! BEGIN;
//! \set namespace_id 1
//! \set keys 'ARRAY[''order-7'']'
//! \set consumers 'ARRAY[0]'
//! \i src/store/sql/find_heads.sql
//! ROLLBACK;
//! ```

use diesel::query_builder::SqlQuery;
use diesel::sql_query;

/// The statement of one file in `sql/`.
#[derive(Debug, Clone, Copy)]
pub struct Statement {
    /// The text that PostgreSQL receives: numbered parameters, no comments.
    pub sql: &'static str,
    source: &'static str,
}

impl Statement {
    /// Use `statement!` instead, which computes the buffer.
    pub(in crate::store) const fn new(source: &'static str, buffer: &'static [u8], length: usize) -> Self {
        match str::from_utf8(buffer.split_at(length).0) {
            Ok(sql) => Statement { sql, source },
            Err(_) => panic!("replacing names and comments keeps the text valid UTF-8"),
        }
    }

    /// Returns the query. Bind its parameters in the order in which the file declares them.
    pub(in crate::store) fn query(self) -> SqlQuery {
        sql_query(self.sql)
    }

    /// Returns the types of the parameters, separated by commas.
    pub fn types(self) -> String {
        parameter_types(self.source)
    }
}

/// The [`Statement`] of the file `sql/<name>.sql`.
macro_rules! statement {
    ($name:literal) => {{
        const SOURCE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/sql/", $name, ".sql"));
        const NUMBERED: ([u8; SOURCE.len() + concat!("-- ", $name, "\n").len()], usize) =
            $crate::store::statement::numbered_bytes(concat!("-- ", $name, "\n"), SOURCE);
        const BUFFER: &[u8] = &NUMBERED.0;
        const STATEMENT: $crate::store::statement::Statement =
            $crate::store::statement::Statement::new(SOURCE, BUFFER, NUMBERED.1);
        STATEMENT
    }};
}

pub(in crate::store) use statement;

/// Returns the text of a file with `$n` instead of named parameters and without comments.
///
/// # Panics
///
/// Panics if the file breaks the rules of this module.
pub fn numbered(source: &str) -> String {
    let mut buffer = vec![0; source.len()];
    let length = number(source.as_bytes(), &mut buffer);
    buffer.truncate(length);
    String::from_utf8(buffer).expect("replacing names and comments keeps the text valid UTF-8")
}

/// Returns the types that a file declares for its parameters, separated by commas.
pub fn parameter_types(source: &str) -> String {
    let header = &source[..header_end(source.as_bytes())];
    let parameters = header.split(':').skip(1).map(|parameter| {
        let declared = parameter.lines().next().unwrap_or_default().trim().trim_end_matches(',');
        declared.split_once(' ').map_or("", |(_, kind)| kind)
    });
    parameters.collect::<Vec<_>>().join(", ")
}

/// Does the same as [`numbered`] at compile time, and puts `first_line` in front. Returns a buffer and
/// the number of its bytes that are used.
pub(in crate::store) const fn numbered_bytes<const N: usize>(first_line: &str, source: &str) -> ([u8; N], usize) {
    let mut buffer = [0; N];
    let (prefix, body) = buffer.split_at_mut(first_line.len());
    prefix.copy_from_slice(first_line.as_bytes());
    let length = first_line.len() + number(source.as_bytes(), body);
    (buffer, length)
}

/// Writes the numbered text to `out` and returns its length. The text is never longer than the source,
/// since `:name` has at least as many bytes as `$n`.
const fn number(source: &[u8], out: &mut [u8]) -> usize {
    let header_end = header_end(source);
    let (header, _) = source.split_at(header_end);
    let (mut at, mut length, mut used) = (header_end, 0, 0_u64);
    while at < source.len() {
        let (end, index) = match source[at] {
            b'\'' | b'"' => (quoted_end(source, at), None),
            b'-' if is_at(source, at + 1, b'-') => {
                at = line_end(source, at);
                continue;
            }
            b'/' if is_at(source, at + 1, b'*') => panic!("a comment must begin with --"),
            b'$' => panic!("a parameter must have a name"),
            b':' if is_at(source, at + 1, b':') => (at + 2, None),
            b':' if at + 1 < source.len() && is_letter(source[at + 1]) => {
                let end = name_end(source, at + 1);
                (end, Some(declared_index(header, source, at, end)))
            }
            _ => (at + 1, None),
        };
        match index {
            Some(index) => {
                used |= 1 << index;
                length = write_number(out, length, index + 1);
                at = end;
            }
            None => {
                while at < end {
                    out[length] = source[at];
                    length += 1;
                    at += 1;
                }
            }
        }
    }
    assert!(used == (1 << count_parameters(header)) - 1, "a parameter is declared but not used");
    length
}

/// Returns the end of the lines that declare parameters.
const fn header_end(source: &[u8]) -> usize {
    let mut at = 0;
    while is_at(source, at, b'-')
        && is_at(source, at + 1, b'-')
        && is_at(source, at + 2, b' ')
        && is_at(source, at + 3, b':')
    {
        at = line_end(source, at);
        if at < source.len() {
            at += 1;
        }
    }
    at
}

const fn count_parameters(header: &[u8]) -> usize {
    let (mut at, mut count) = (0, 0);
    while at < header.len() {
        if header[at] == b':' {
            count += 1;
        }
        at += 1;
    }
    assert!(count < 64, "a statement has fewer than 64 parameters");
    count
}

/// Returns the index in the header of the parameter whose name is `source[colon..end]`.
const fn declared_index(header: &[u8], source: &[u8], colon: usize, end: usize) -> usize {
    assert!(end - colon > 2, "the name of a parameter must have two letters or more");
    let (mut at, mut index) = (0, 0);
    while at < header.len() {
        if header[at] == b':' {
            if name_end(header, at + 1) - at == end - colon && is_same(header, at, source, colon, end - colon) {
                return index;
            }
            index += 1;
        }
        at += 1;
    }
    panic!("a parameter is used but not declared")
}

const fn write_number(out: &mut [u8], at: usize, number: usize) -> usize {
    out[at] = b'$';
    if number < 10 {
        out[at + 1] = b'0' + number as u8;
        return at + 2;
    }
    out[at + 1] = b'0' + (number / 10) as u8;
    out[at + 2] = b'0' + (number % 10) as u8;
    at + 3
}

/// Returns the end of a quoted string. A doubled quote inside needs no care: it reads as two strings
/// side by side.
const fn quoted_end(source: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while source[at] != source[begin] {
        at += 1;
    }
    at + 1
}

const fn line_end(source: &[u8], mut at: usize) -> usize {
    while at < source.len() && source[at] != b'\n' {
        at += 1;
    }
    at
}

const fn name_end(source: &[u8], mut at: usize) -> usize {
    while at < source.len() && (is_letter(source[at]) || source[at].is_ascii_digit()) {
        at += 1;
    }
    at
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte == b'_'
}

const fn is_at(source: &[u8], at: usize, byte: u8) -> bool {
    at < source.len() && source[at] == byte
}

const fn is_same(one: &[u8], from: usize, other: &[u8], other_from: usize, length: usize) -> bool {
    let mut offset = 0;
    while offset < length {
        if one[from + offset] != other[other_from + offset] {
            return false;
        }
        offset += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{numbered, parameter_types};

    #[test]
    fn names_become_numbers_in_the_order_of_the_header() {
        let source = "-- :now timestamptz, :ids bigint[],\n-- :seconds double precision\n-- Words.\nSELECT :ids, :now, :seconds, :ids";
        assert_eq!(numbered(source).trim(), "SELECT $2, $1, $3, $2");
        assert_eq!(parameter_types(source), "timestamptz, bigint[], double precision");
    }

    #[test]
    fn a_name_may_begin_like_another() {
        assert_eq!(numbered("-- :ids int, :id int\nSELECT :id, :ids").trim(), "SELECT $2, $1");
    }

    #[test]
    fn casts_strings_slices_and_comments_are_not_parameters() {
        let source = "-- :id int\nSELECT :id::text, 't:' || 'it''s :no', \"a:b\", a[1:10] -- :nothing\nFROM t";
        assert_eq!(numbered(source), "SELECT $1::text, 't:' || 'it''s :no', \"a:b\", a[1:10] \nFROM t");
    }

    #[test]
    fn a_statement_may_have_no_parameters_or_many() {
        assert_eq!(numbered("-- Words about :things.\nSELECT 1").trim(), "SELECT 1");
        assert_eq!(parameter_types("SELECT 1"), "");
        let names: Vec<String> = (1..=26).map(|n| format!(":p{n}")).collect();
        let source = format!("-- {} int\nSELECT {}", names.join(" int, "), names.join(", "));
        assert!(
            numbered(&source)
                .ends_with("$9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26")
        );
    }

    #[test]
    #[should_panic(expected = "used but not declared")]
    fn a_used_parameter_must_be_declared() {
        numbered("-- :id int\nSELECT :id, :ids");
    }

    #[test]
    #[should_panic(expected = "declared but not used")]
    fn a_declared_parameter_must_be_used() {
        numbered("-- :id int, :ids int\nSELECT :id");
    }

    #[test]
    #[should_panic(expected = "a parameter must have a name")]
    fn numbered_parameters_are_refused() {
        numbered("SELECT $1");
    }
}
