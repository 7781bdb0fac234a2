//! Secrets at rest: what is in the database, in logs and in responses, and what happens if a key is missing or
//! changed.

mod commands;
mod dump;
mod keys;
mod life;
mod logs;
mod rotation;
mod sources;
mod tampering;

use std::io::Write;
use std::process::Output;

use diesel::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::RunQueryDsl;
use serde_json::Value;
use tempfile::NamedTempFile;
use waybill::domain::encryption::{Keyring, SecretKey};
use waybill::domain::signature::{Secret, sign};

use crate::support::process::waybill;
use crate::support::receiver::Recorded;
use crate::support::{App, Options, database, until};

/// A file of keys.
struct KeyFile(NamedTempFile);

impl KeyFile {
    fn of(keys: &[&str]) -> Self {
        let mut file = NamedTempFile::new().expect("a file");
        file.write_all(keys.join("\n").as_bytes()).expect("it is written");
        KeyFile(file)
    }

    fn path(&self) -> &str {
        self.0.path().to_str().expect("text")
    }

    fn flags(&self) -> Vec<String> {
        // A short interval, because tests change subscriptions in the database.
        vec![format!("--secret-key-file={}", self.path()), "--poll-interval-ms=50".into()]
    }
}

fn new_key() -> String {
    SecretKey::generate().expect("random bytes")
}

fn id_of_key(key: &str) -> String {
    Keyring::parse(key).expect("a key").first_id().expect("a key").to_owned()
}

/// Starts a server with these keys on a database, or on a new one.
async fn start(keys: &[&str], url: Option<&str>) -> App {
    let file = KeyFile::of(keys);
    let flags = if keys.is_empty() { vec!["--poll-interval-ms=50".into()] } else { file.flags() };
    App::start_with(Options { flags, url: url.map(str::to_owned), ..Options::default() }).await
}

/// Returns all rows of all tables as text.
async fn dump(url: &str) -> String {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = Text)]
        text: String,
    }
    let mut conn = database::connection(url).await;
    let tables = "SELECT relname::text AS text FROM pg_class \
                  WHERE relnamespace = 'waybill'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition";
    let tables: Vec<Row> = diesel::sql_query(tables).load(&mut conn).await.expect("tables");
    assert!(tables.len() > 15, "only {} tables were found", tables.len());
    let mut dump = String::new();
    for Row { text: table } in tables {
        let rows = format!("SELECT t::text AS text FROM waybill.{table} t");
        let rows: Vec<Row> = diesel::sql_query(rows).load(&mut conn).await.expect("rows");
        dump.extend(rows.into_iter().map(|row| format!("{table} {}\n", row.text)));
    }
    dump
}

/// Runs `waybill secrets rotate`.
async fn rotate(url: &str, keys: &[&str], flags: &[&str]) -> Output {
    let file = KeyFile::of(keys);
    let mut arguments = vec!["secrets", "rotate", "--database-url", url];
    if !keys.is_empty() {
        arguments.extend(["--secret-key-file", file.path()]);
    }
    arguments.extend(flags);
    let mut command = waybill(&arguments);
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs")
}

/// Asserts that a command succeeded, and returns what it printed.
#[track_caller]
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Returns whether a request has a signature of this secret.
fn is_signed_with(request: &Recorded, secret: &str) -> bool {
    let secret = Secret::parse(secret).expect("a secret");
    let header = |name| request.header(name).expect(name);
    let timestamp = header("webhook-timestamp").parse().expect("a number");
    let expected = sign(&[secret], header("webhook-id"), timestamp, &request.body);
    header("webhook-signature").split(' ').any(|signature| signature == expected)
}

#[track_caller]
fn assert_signed(request: &Recorded, subscription: &Value) {
    assert!(is_signed_with(request, subscription["secret"].as_str().expect("a secret")), "{:?}", request.headers);
}

/// Runs statements, and lets all servers load the subscriptions again.
async fn change_rows(app: &App, sql: &str) {
    let reload = "UPDATE waybill.subscription_catalog SET generation = generation + 1";
    database::execute(&app.url, &format!("{sql}; {reload}")).await;
}

/// Waits until a server holds this number of subscriptions.
async fn until_held(app: &App, count: usize) {
    let line = format!("waybill_subscriptions_held {count}\n");
    until(&line, async || app.get("/metrics").await.expect(200).text.contains(&line)).await;
}
