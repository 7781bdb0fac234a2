//! `waybill publish`: one event, or many from a file.

mod batch;

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use super::client::{Answer, connect};
use super::error::CliError;
use super::output::{Output, word};
use crate::client::{ClientError, NewEvent, Publisher};
use crate::config::PublishArgs;

/// The most bytes of a payload that are read. The server accepts fewer, and says so.
const MAX_PAYLOAD_BYTES: u64 = 16 * 1024 * 1024;

pub(crate) async fn run(args: PublishArgs) -> Result<(), CliError> {
    if let Some(file) = &args.batch {
        return batch::run(&args, file).await;
    }
    let output = Output::new(&args.server);
    let event = event_of(&args)?;
    let publisher = Publisher::new(connect(&args.server.connection)?).patience(Duration::from_secs(args.retry_seconds));
    let published = Answer::read(publisher.publish_as(event).await?)?;
    output.answer(&published, |event| {
        let repeated = if event["repeated"].as_bool() == Some(true) { ", and was published before" } else { "" };
        output.line(&format!("event {} is {}{repeated}", word(&event["id"]), word(&event["status"])))
    })
}

fn event_of(args: &PublishArgs) -> Result<NewEvent, CliError> {
    let event = NewEvent {
        title: args.title.clone().unwrap_or_default(),
        tags: args.tags.clone(),
        description: args.description.clone(),
        event_type: args.event_type.clone(),
        labels: args.label.iter().cloned().collect(),
        priority: args.priority,
        delay_seconds: args.delay,
        run_at: args.run_at.clone(),
        expires_at: args.expires_at.clone(),
        max_retries: args.max_retries,
        ordering_key: args.ordering_key.clone(),
        correlation_id: args.correlation_id.clone(),
        idempotency_key: args.idempotency_key.clone(),
        payload: None,
    };
    let Some(payload) = &args.payload else { return Ok(event) };
    event.payload_text(read_payload(payload)?).map_err(|error| match error {
        ClientError::Settings(why) => CliError::Usage(why),
        other => other.into(),
    })
}

/// Returns the payload that `--payload` gives, or names.
fn read_payload(argument: &str) -> Result<String, CliError> {
    match argument.strip_prefix('@') {
        Some(path) => {
            let failed = |error: io::Error| CliError::Failed(format!("{path}: {error}"));
            read_text(File::open(path).map_err(failed)?).map_err(failed)
        }
        None if argument == "-" => {
            read_text(io::stdin()).map_err(|error| CliError::Failed(format!("standard input: {error}")))
        }
        None => Ok(argument.to_owned()),
    }
}

fn read_text(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    match from.take(MAX_PAYLOAD_BYTES + 1).read_to_string(&mut text)? as u64 {
        ..=MAX_PAYLOAD_BYTES => Ok(text),
        _ => Err(io::Error::other(format!("more than {MAX_PAYLOAD_BYTES} bytes"))),
    }
}
