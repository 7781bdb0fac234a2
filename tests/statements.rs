//! Every file in `src/store/sql` is a whole statement with declared parameters, and fits the
//! schema.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use waybill::store::statement::{numbered, parameter_types};

use crate::support::database;

fn store() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store")
}

/// Returns the files of a folder with this extension, by name.
fn files(folder: &Path, extension: &str) -> BTreeMap<String, String> {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let paths = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    let named = paths.map(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("a file that is text"))
    });
    named.collect()
}

fn statements() -> BTreeMap<String, String> {
    files(&store().join("sql"), "sql")
}

/// Returns a connection on which every file is prepared under its name.
async fn prepared() -> AsyncPgConnection {
    let mut conn = database::connection(&database::migrated().await).await;
    for (name, source) in statements() {
        let types = parameter_types(&source);
        let types = if types.is_empty() { types } else { format!("({types})") };
        let prepare = format!("PREPARE {name} {types} AS {}", numbered(&source));
        conn.batch_execute(&prepare).await.unwrap_or_else(|error| panic!("{name}.sql: {error}\n{prepare}"));
    }
    conn
}

#[tokio::test(flavor = "multi_thread")]
async fn every_file_can_be_prepared() {
    let statements = statements();
    assert!(statements.len() > 15, "only {} files were found", statements.len());
    prepared().await;
}

/// A server of the previous version goes on while a migration adds columns: PostgreSQL refuses to run a
/// prepared statement whose result would have other columns than when it was prepared.
#[tokio::test(flavor = "multi_thread")]
async fn every_prepared_statement_survives_new_columns() {
    let mut conn = prepared().await;
    let add_columns = "DO $$ DECLARE name regclass; BEGIN \
        FOR name IN SELECT oid FROM pg_class WHERE relnamespace = 'waybill'::regnamespace \
            AND relkind IN ('r', 'p') AND NOT relispartition LOOP \
            EXECUTE format('ALTER TABLE %s ADD COLUMN added_later text', name); END LOOP; END $$";
    conn.batch_execute(add_columns).await.expect("new columns");
    for (name, source) in statements() {
        let types = parameter_types(&source);
        let nulls = vec!["NULL"; if types.is_empty() { 0 } else { types.split(',').count() }].join(", ");
        let call = if nulls.is_empty() { name.clone() } else { format!("{name}({nulls})") };
        let explain = format!("EXPLAIN EXECUTE {call}");
        conn.batch_execute(&explain).await.unwrap_or_else(|error| panic!("{name}.sql: {error}"));
    }
}

#[test]
fn every_file_is_used_by_its_name() {
    let folders =
        [store(), store().join("connection"), store().join("tables"), store().join("lists"), store().join("retention")];
    let code: String = folders.iter().flat_map(|folder| files(folder, "rs").into_values()).collect();
    for name in statements().keys() {
        assert!(code.contains(&format!("statement!(\"{name}\")")), "{name}.sql");
    }
}

/// `psql` sends what it has read at each semicolon.
#[test]
fn every_file_is_one_statement() {
    for (name, source) in statements() {
        let text = numbered(&source).replace("'t;'", "").replace("'s;'", "");
        assert!(!text.contains(';'), "{name}.sql");
    }
}
