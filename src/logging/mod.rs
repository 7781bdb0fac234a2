//! Formats log lines as text or as JSON objects. Both carry the key-values of the log call and, while
//! a request is handled, its `request_id`.

pub(crate) mod limiter;

use std::fmt::Write as _;
use std::io::Write as _;

use chrono::{SecondsFormat, Utc};
use log::kv::{Key, Value, VisitSource};

use crate::config::{LogArgs, LogFormat};

tokio::task_local! {
    /// The id of the request that the current task handles.
    pub static REQUEST_ID: String;
}

/// The length at which a message is truncated. It keeps client input from flooding the log.
const MAX_MESSAGE_BYTES: usize = 4_000;

/// Installs the logger. Further calls have no effect.
pub(crate) fn init(args: &LogArgs) {
    let format = args.log_format;
    let _ = env_logger::Builder::new()
        // The driver's debug lines contain data sent by clients.
        .filter_module("tokio_postgres", log::LevelFilter::Info)
        // It logs malformed requests as errors; `http/server.rs` logs them with the client's address.
        .filter_module("actix_http::h1", log::LevelFilter::Off)
        // At its start it tells of workers, which are its threads; ours are other programs.
        .filter_module("actix_server", log::LevelFilter::Warn)
        .parse_filters(&args.log)
        .format(move |out, record| {
            let line = match format {
                LogFormat::Text => text_line(record),
                LogFormat::Json => json_line(record),
            };
            writeln!(out, "{line}")
        })
        .try_init();
}

fn text_line(record: &log::Record<'_>) -> String {
    let mut line = format!("{} {:<5} {}", timestamp(), record.level(), message(record));
    for (key, value) in fields(record) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = write!(line, " {key}={}", value.escape_debug());
    }
    line
}

fn json_line(record: &log::Record<'_>) -> String {
    let mut object = serde_json::Map::new();
    object.insert("time".into(), timestamp().into());
    object.insert("level".into(), record.level().as_str().into());
    object.insert("target".into(), record.target().into());
    object.insert("message".into(), message(record).into());
    object.extend(fields(record));
    serde_json::Value::Object(object).to_string()
}

fn timestamp() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn message(record: &log::Record<'_>) -> String {
    let mut message = record.args().to_string();
    if message.len() > MAX_MESSAGE_BYTES {
        let end = (0..=MAX_MESSAGE_BYTES).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    // Each record must stay on one line.
    if message.contains('\n') { message.replace('\n', "\\n") } else { message }
}

fn fields(record: &log::Record<'_>) -> Vec<(String, serde_json::Value)> {
    struct Collect(Vec<(String, serde_json::Value)>);
    impl<'kvs> VisitSource<'kvs> for Collect {
        fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
            let value = serde_json::to_value(&value).unwrap_or_else(|_| value.to_string().into());
            self.0.push((key.to_string(), value));
            Ok(())
        }
    }
    let mut collect = Collect(Vec::new());
    let _ = record.key_values().visit(&mut collect);
    let _ = REQUEST_ID.try_with(|id| collect.0.push(("request_id".into(), id.clone().into())));
    collect.0
}
