//! Publishes events and works on them, with the Rust client.
//!
//! `cargo run --example publish_and_work`, beside a server. `WAYBILL_URL` and `WAYBILL_KEY` name another one.

use std::env;
use std::error::Error;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::sync::mpsc::{self, Sender};
use waybill::client::{ClaimedEvent, Client, Handler, Job, NewEvent, Outcome, Publisher, Worker, WorkerOptions};

/// The number of photos to resize.
const PHOTOS: u64 = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("WAYBILL_URL").unwrap_or_else(|_| "http://127.0.0.1:8080".to_owned());
    let key = env::var("WAYBILL_KEY").ok();
    for id in run(&url, key.as_deref()).await? {
        println!("event {id} is done");
    }
    Ok(())
}

/// Publishes events, works on them, and returns their ids in the order in which they were done.
pub(crate) async fn run(url: &str, key: Option<&str>) -> Result<Vec<i64>, Box<dyn Error>> {
    let client = Client::new(url, key)?;
    publish(&client).await?;
    // Each event is tried again until it is complete. A program that works for ever just awaits `worker.run`.
    let (done, mut finished) = mpsc::channel(1);
    let worker = Worker::new(client, WorkerOptions { concurrency: 2, ..WorkerOptions::new(["example-photos"]) });
    let working = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run(Resize { done }).await }
    });
    let mut ids = Vec::new();
    while (ids.len() as u64) < PHOTOS {
        ids.extend(finished.recv().await);
    }
    // Claims no more, and returns when all that runs is settled.
    worker.drain();
    working.await??;
    Ok(ids)
}

/// Publishes one event for each photo. A request whose answer is lost is sent again, and stored once.
async fn publish(client: &Client) -> Result<(), Box<dyn Error>> {
    let publisher = Publisher::new(client.clone());
    let resize = |photo: u64| {
        NewEvent::new(format!("Resize photo {photo}"), ["example-photos"]).payload(&json!({"photo": photo}))
    };
    publisher.publish(resize(1)?).await?;
    let others = (2..=PHOTOS).map(resize).collect::<Result<Vec<_>, _>>()?;
    publisher.publish_events(others).await?;
    Ok(())
}

#[derive(Deserialize)]
struct Photo {
    photo: u64,
}

struct Resize {
    done: Sender<i64>,
}

impl Handler for Resize {
    async fn handle(&self, event: Arc<ClaimedEvent>, job: Job) -> Outcome {
        let Ok(Photo { photo }) = serde_json::from_str(event.payload.get()) else {
            // No other attempt would read it either.
            return Outcome::Fail { error: "the payload names no photo".to_owned(), retryable: false };
        };
        if job.reason().is_some() {
            // The event was cancelled, or belongs to somebody else by now.
            return Outcome::Release { delay: std::time::Duration::ZERO };
        }
        // The channel is closed when nobody waits for the ids any more.
        let _ = self.done.send(event.id).await;
        Outcome::Complete { result: to_raw_value(&json!({"file": format!("{photo}-640.webp")})).ok() }
    }
}
