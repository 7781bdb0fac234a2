//! `push`: the server pushes events to a receiver that this process runs.
//!
//! With a rate, events are published at fixed times, and each latency is measured from the due time to
//! the arrival. Without a rate, a backlog is published while the receiver holds back its responses; then
//! the receiver starts to respond, and the time to drain the backlog is measured.
//! The server must be allowed to push to this machine: `--webhook-allow 127.0.0.0/8`.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::connection::{Connection, expect};
use super::plan::DUE;
use super::report::Report;
use super::tally::Tally;
use crate::config::BenchArgs;

/// Events per request while a backlog is published.
const BACKLOG_BATCH: usize = 500;

/// The time to wait for the last pushes.
const LAST_PUSHES: Duration = Duration::from_secs(60);

/// The largest expected request, in bytes.
const MAX_REQUEST: usize = 2 * 1024 * 1024;

/// The state that the connections of the receiver share.
struct ReceiverState {
    started: Instant,
    hold: Duration,
    is_open: watch::Receiver<bool>,
    tally: Mutex<Tally>,
    arrived: watch::Sender<u64>,
}

/// Runs the workload and reports it.
pub(crate) async fn run(args: &BenchArgs) -> Result<Report, String> {
    let host =
        args.url.strip_prefix("http://").ok_or("--url must begin with http://")?.trim_end_matches('/').to_owned();
    let event_type = format!("{}.{:08x}", args.tag, getrandom::u32().unwrap_or_default());
    let (open, is_open) = watch::channel(args.rate > 0);
    let (arrived, mut arrivals) = watch::channel(0);
    let state = Arc::new(ReceiverState {
        started: Instant::now(),
        hold: Duration::from_millis(args.hold_ms),
        is_open,
        tally: Mutex::new(Tally::new()),
        arrived,
    });
    let address = receive(state.clone()).await?;
    let mut connection = Connection::open(&host, args.key.as_deref()).await?;
    let ids = subscribe(&mut connection, args, &event_type, &address).await?;
    let (published, began) = match args.rate {
        0 => {
            let published = publish_backlog(&mut connection, args, &event_type).await?;
            let began = Instant::now();
            open.send(true).map_err(|error| error.to_string())?;
            (published, began)
        }
        _ => (publish_at_rate(&host, args, &event_type, state.started).await?, state.started),
    };
    let all = arrivals.wait_for(|count| *count >= published);
    tokio::time::timeout(LAST_PUSHES, all).await.map_err(|_| "not everything arrived")?.map_err(|e| e.to_string())?;
    let elapsed = began.elapsed();
    for id in ids {
        connection.delete(&format!("/subscriptions/{id}")).await?;
    }
    let tally = state.tally.lock().await;
    Ok(Report::new(args, &tally, elapsed, Vec::new()))
}

/// Subscribes the receiver. With `--hanging`, also subscribes a URL that never responds, and publishes events
/// for it.
async fn subscribe(
    connection: &mut Connection,
    args: &BenchArgs,
    event_type: &str,
    address: &str,
) -> Result<Vec<u64>, String> {
    let mut ids = Vec::new();
    let mut targets = vec![("", event_type.to_owned())];
    if args.hanging > 0 {
        targets.push(("hang", format!("{event_type}.hang")));
    }
    for (path, event_type) in targets {
        let body = serde_json::json!({
            "url": format!("http://{address}/{path}"), "event_types": [event_type],
            "max_concurrency": args.concurrency, "timeout_ms": 60_000,
        });
        let response = connection.post("/subscriptions", body.to_string().as_bytes()).await?;
        expect(response.status, 201)?;
        let subscription: serde_json::Value =
            serde_json::from_slice(response.body).map_err(|error| error.to_string())?;
        ids.extend(subscription["id"].as_u64());
    }
    for _ in 0..args.hanging {
        let body = event(&format!("{event_type}.hang"), args.payload_bytes, Duration::ZERO);
        expect(connection.post("/events", body.as_bytes()).await?.status, 201)?;
    }
    Ok(ids)
}

async fn publish_backlog(connection: &mut Connection, args: &BenchArgs, event_type: &str) -> Result<u64, String> {
    let event = event(event_type, args.payload_bytes, Duration::ZERO);
    let mut left = args.prefill;
    while left > 0 {
        let count = left.min(BACKLOG_BATCH);
        let body = format!("{{\"events\":[{}]}}", vec![event.as_str(); count].join(","));
        expect(connection.post("/events/batch", body.as_bytes()).await?.status, 201)?;
        left -= count;
    }
    Ok(args.prefill as u64)
}

async fn publish_at_rate(host: &str, args: &BenchArgs, event_type: &str, started: Instant) -> Result<u64, String> {
    let total = args.rate * args.seconds;
    let interval = Duration::from_secs_f64(args.connections as f64 / args.rate as f64);
    let mut tasks = Vec::new();
    for number in 0..args.connections {
        let mut connection = Connection::open(host, args.key.as_deref()).await?;
        let count = total / args.connections as u64 + u64::from((number as u64) < total % args.connections as u64);
        let first = started + interval.mul_f64(number as f64 / args.connections as f64);
        let (event_type, payload_bytes) = (event_type.to_owned(), args.payload_bytes);
        tasks.push(tokio::spawn(async move {
            for step in 0..count {
                let due = first + interval.mul_f64(step as f64);
                tokio::time::sleep_until(due).await;
                let body = event(&event_type, payload_bytes, due - started);
                expect(connection.post("/events", body.as_bytes()).await?.status, 201)?;
            }
            Ok::<(), String>(())
        }));
    }
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    Ok(total)
}

fn event(event_type: &str, payload_bytes: usize, due: Duration) -> String {
    let due = format!("{DUE}{}", due.as_micros());
    let data = "x".repeat(payload_bytes.saturating_sub(due.len() + 12));
    format!("{{\"event_type\":\"{event_type}\",\"payload\":{{{due},\"data\":\"{data}\"}}}}")
}

/// Starts the receiver and returns its address.
async fn receive(state: Arc<ReceiverState>) -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?.to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, state.clone()));
        }
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream, state: Arc<ReceiverState>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut buffer = Vec::with_capacity(8 * 1024);
    loop {
        let (head, length) = read_request(&mut stream, &mut buffer).await?;
        let arrived_at = state.started.elapsed();
        if buffer.starts_with(b"POST /hang") {
            std::future::pending::<()>().await;
        }
        let due = due_of(&buffer[head..head + length]);
        buffer.drain(..head + length);
        state.is_open.clone().wait_for(|is_open| *is_open).await.ok()?;
        tokio::time::sleep(state.hold).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok()?;
        let mut tally = state.tally.lock().await;
        tally.events += 1;
        tally.requests += 1;
        tally.latency.saturating_record(arrived_at.saturating_sub(due).as_micros() as u64);
        state.arrived.send_replace(tally.events);
    }
}

/// Reads until a request is complete. Returns the start of its body and its length.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(usize, usize)> {
    loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = std::str::from_utf8(&buffer[..end]).ok()?.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok())?;
            if buffer.len() >= end + 4 + length {
                return Some((end + 4, length));
            }
        }
        if buffer.len() > MAX_REQUEST || stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

fn due_of(body: &[u8]) -> Duration {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let digits = text.split(DUE).nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    Duration::from_micros(digits.and_then(|digits| digits.parse().ok()).unwrap_or_default())
}
