//! The conditions of a filter for events in SQL: all but those on payloads, which `payloads.rs` checks.

use diesel::pg::Pg;
use diesel::serialize::ToSql;
use diesel::sql_types::{Array, HasSqlType, Text};

use crate::store::lists::event_filter::{EventFilter, Exclusions};
use crate::store::lists::filtered_query::FilteredQuery;

/// The tables of a statement that have the columns of an event and of its own delivery.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    pub event: &'static str,
    pub work: &'static str,
}

/// Appends the conditions of a filter.
pub(super) fn event_conditions<'q>(
    query: FilteredQuery<'q>,
    filter: &EventFilter,
    tables: Tables,
) -> FilteredQuery<'q> {
    let Tables { event, work } = tables;
    let query = match filter.status {
        Some(status) => query.sql(&format!(" AND {work}.status = '{}'", status.as_str())),
        None => query,
    };
    let mut query = query
        .and_given::<Text, _>(&format!("{work}.worker_id ="), filter.worker_id.clone())
        .and_given::<Array<Text>, _>(&has_tags(event), some_tags(&filter.tags))
        .and_given::<Text, _>(&format!("{event}.event_type ="), filter.event_type.clone())
        .and_given::<Text, _>(&format!("{event}.correlation_id ="), filter.correlation_id.clone())
        .and_given::<Text, _>(&format!("{event}.ordering_key ="), filter.ordering_key.clone())
        .and_time_range(&format!("{event}.created_at"), filter.since, filter.until);
    if let Some(text) = &filter.text {
        query = with_text(query.sql(" AND "), text, tables);
    }
    for (name, value) in &filter.labels {
        query = with_label(query.sql(" AND "), name, value, event);
    }
    exclusions(query, &filter.not, tables)
}

fn exclusions<'q>(query: FilteredQuery<'q>, not: &Exclusions, tables: Tables) -> FilteredQuery<'q> {
    let Tables { event, work } = tables;
    let query = match not.status {
        Some(status) => query.sql(&format!(" AND {work}.status <> '{}'", status.as_str())),
        None => query,
    };
    let query = unless::<Text, _>(query, &format!("{work}.worker_id ="), not.worker_id.clone());
    let query = unless::<Array<Text>, _>(query, &has_tags(event), some_tags(&not.tags));
    let query = unless::<Text, _>(query, &format!("{event}.event_type ="), not.event_type.clone());
    let query = unless::<Text, _>(query, &format!("{event}.correlation_id ="), not.correlation_id.clone());
    let mut query = unless::<Text, _>(query, &format!("{event}.ordering_key ="), not.ordering_key.clone());
    if let Some(text) = &not.text {
        query = with_text(query.sql(" AND "), text, tables).sql(" IS NOT TRUE");
    }
    for (name, value) in &not.labels {
        query = with_label(query.sql(" AND "), name, value, event).sql(" IS NOT TRUE");
    }
    query
}

/// Appends the condition that something is false or unknown, if there is a value.
fn unless<'q, T, V>(query: FilteredQuery<'q>, condition: &str, value: Option<V>) -> FilteredQuery<'q>
where
    Pg: HasSqlType<T>,
    T: Send + 'q,
    V: ToSql<T, Pg> + Send + 'q,
{
    match value {
        Some(value) => query.sql(&format!(" AND ({condition} ")).bind::<T, _>(value).sql(") IS NOT TRUE"),
        None => query,
    }
}

fn has_tags(event: &str) -> String {
    format!("string_to_array({event}.tags, ',') &&")
}

fn some_tags(tags: &[String]) -> Option<Vec<String>> {
    Some(tags.to_vec()).filter(|tags| !tags.is_empty())
}

/// Appends whether the title or the last error contains a text, in any case.
fn with_text<'q>(query: FilteredQuery<'q>, text: &str, tables: Tables) -> FilteredQuery<'q> {
    let (Tables { event, work }, pattern) = (tables, pattern_of(text));
    query
        .sql(&format!("({event}.title ~ "))
        .bind::<Text, _>(pattern.clone())
        .sql(&format!(" OR {work}.last_error ~ "))
        .bind::<Text, _>(pattern)
        .sql(")")
}

/// Appends whether a label has a value. Labels have no U+0000, which the operator would refuse.
fn with_label<'q>(query: FilteredQuery<'q>, name: &str, value: &str, event: &str) -> FilteredQuery<'q> {
    query
        .sql(&format!("(({event}.labels ->> "))
        .bind::<Text, _>(name.to_owned())
        .sql(") = ")
        .bind::<Text, _>(value.to_owned())
        .sql(")")
}

/// Returns the regular expression that finds a text in any case. `lower` depends on the locale of the database, and
/// knows only ASCII in the one that Waybill creates, so the pattern names both cases of each letter.
fn pattern_of(text: &str) -> String {
    let mut pattern = String::new();
    for character in text.chars() {
        let cases = cases_of(character);
        if cases.len() > 1 {
            pattern.push('[');
            pattern.extend(cases);
            pattern.push(']');
        } else {
            // What is no letter or digit may have a meaning, which the backslash takes away.
            if character.is_ascii_punctuation() {
                pattern.push('\\');
            }
            pattern.push(character);
        }
    }
    pattern
}

/// Returns a letter in all its cases. A case of several characters, such as SS for ß, is left out.
fn cases_of(character: char) -> Vec<char> {
    let mut cases = vec![character];
    let mut next = 0;
    while let Some(known) = cases.get(next).copied() {
        let lower = Some(known.to_lowercase()).filter(|lower| lower.len() == 1);
        let upper = Some(known.to_uppercase()).filter(|upper| upper.len() == 1);
        for case in lower.into_iter().flatten().chain(upper.into_iter().flatten()) {
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
        next += 1;
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::pattern_of;

    #[test]
    fn a_pattern_names_both_cases_of_letters_and_nothing_else_has_a_meaning() {
        assert_eq!(pattern_of("a1 %_"), r"[aA]1 \%\_");
        assert_eq!(pattern_of(".*[^]$\\(?i)"), r"\.\*\[\^\]\$\\\(\?[iI]\)");
        assert_eq!(pattern_of("Ä😀漢"), "[Ää]😀漢");
        assert_eq!(pattern_of("ς"), "[ςΣσ]");
        assert_eq!(pattern_of("ß"), "ß");
    }
}
